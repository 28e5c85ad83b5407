"""What the bonus sees of an observation."""

import pytest
import torch

from mimex.cli import main
from mimex.commands.build import make_training
from mimex.config import parse
from mimex.data.spaces import view_indices

GROUPS = {"joints": (0, 9), "velocities": (9, 18), "object": (24, 27)}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("object",), [24, 25, 26]),
        (("object", "joints"), [*range(9), 24, 25, 26]),
        (("3",), [3]),
        (("1:4", "2:5"), [1, 2, 3, 4]),
        (("33",), [33]),
    ],
)
def test_names_and_ranges_select_features_in_order_and_once(names, expected):
    assert view_indices(names, 34, GROUPS) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cube", "groups of this observation are: joints, velocities, object"),
        ("30:40", "a range within 0:34"),
        ("5:5", "a range within 0:34"),
    ],
)
def test_an_unknown_group_is_refused_with_what_exists(name, message):
    with pytest.raises(ValueError, match=message):
        view_indices((name,), 34, GROUPS)


def made(*arguments):
    few = ("--envs", "2", "--threads", "1", "--steps", "64", "--bonus", "rnd")
    return make_training(parse([*arguments, *few]).checked())


def test_the_bonus_sees_the_cube_alone_and_the_policy_everything():
    run = made("FrankaPick", "--bonus-view", "object")
    assert run.agent.bonus.feature_dim == 3
    assert run.agent.algorithm.encoder.width == 34
    run.env.reset(seed=0)
    observation = run.env.unwrapped.observe()
    stored = run.agent.algorithm.encoder.read(observation)
    everything = run.agent.algorithm.features(stored)
    torch.testing.assert_close(run.agent._features(stored), everything[:, 24:27])


def test_groups_of_the_control_suite_and_of_dict_observations_have_names():
    run = made("dmc/cartpole_swingup", "--agent", "ppo", "--bonus-view", "velocity")
    assert run.agent.view.tolist() == [3, 4]
    run = made("gym/tests.tasks:DictBox-v0", "--bonus-view", "place")
    assert run.agent.view.tolist() == [2, 3]  # Gymnasium sorts the keys: "again" comes first


def test_off_policy_bonuses_see_the_view_too(tmp_path):
    small = ("--steps", "120", "--eval.episodes", "1", "--drqv2.seed-steps", "10")
    more = ("--bonus", "rnd", "--bonus-view", "velocity", "--out", str(tmp_path), "--threads", "1")
    assert main(["train", "dmc/cartpole_swingup", *small, *more]) == 0


@pytest.mark.render
def test_an_encoder_has_no_groups():
    with pytest.raises(ValueError, match="--bonus-view is object, but the bonus gets an encoder's"):
        made("FrankaPick", "--observation", "pixels", "--bonus-view", "object")


def test_a_wrong_name_leaves_no_trace(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "FrankaPick", "--bonus", "rnd", "--bonus-view", "cube", "--envs", "2",
                 "--out", str(run)]) != 0  # fmt: skip
    assert "hand_to_object" in capsys.readouterr().err
    assert not (run / "config.json").exists()
