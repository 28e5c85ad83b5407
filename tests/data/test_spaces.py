"""Views: the part of an observation that the bonus sees."""

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
def test_names_and_ranges_select_sorted_unique_features(names, expected):
    assert view_indices(names, 34, GROUPS) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cube", "groups of this observation are: joints, velocities, object"),
        ("30:40", "a range within 0:34"),
        ("5:5", "a range within 0:34"),
    ],
)
def test_an_unknown_group_raises_with_the_known_groups(name, message):
    with pytest.raises(ValueError, match=message):
        view_indices((name,), 34, GROUPS)


def made(*arguments):
    few = ("--envs", "2", "--threads", "1", "--steps", "64", "--bonus", "rnd")
    return make_training(parse([*arguments, *few]).checked())


def test_bonus_view_restricts_the_bonus_but_not_the_policy():
    run = made("FrankaPick", "--bonus-view", "object")
    assert run.agent.bonus.feature_dim == 3
    assert run.agent.algorithm.encoder.width == 34
    run.env.reset(seed=0)
    observation = run.env.unwrapped.observe()
    stored = run.agent.algorithm.encoder.read(observation)
    everything = run.agent.algorithm.features(stored)
    torch.testing.assert_close(run.agent._features(stored), everything[:, 24:27])


def test_the_control_suite_and_dict_observations_have_named_groups():
    run = made("dmc/cartpole_swingup", "--agent", "ppo", "--bonus-view", "velocity")
    assert run.agent.view.tolist() == [3, 4]
    run = made("gym/tests.tasks:DictBox-v0", "--bonus-view", "place")
    assert run.agent.view.tolist() == [2, 3]  # Gymnasium sorts the keys: "again" comes first


def test_bonus_view_works_off_policy(tmp_path):
    small = ("--steps", "120", "--eval.episodes", "1", "--drqv2.seed-steps", "10")
    more = ("--bonus", "rnd", "--bonus-view", "velocity", "--out", str(tmp_path), "--threads", "1")
    assert main(["train", "dmc/cartpole_swingup", *small, *more]) == 0


@pytest.mark.render
def test_bonus_view_of_encoded_features_raises():
    with pytest.raises(ValueError, match="--bonus-view is object, but the bonus gets an encoder's"):
        made("FrankaPick", "--observation", "pixels", "--bonus-view", "object")


def test_an_unknown_group_creates_no_run(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "FrankaPick", "--bonus", "rnd", "--bonus-view", "cube", "--envs", "2",
                 "--out", str(run)]) != 0  # fmt: skip
    assert "hand_to_object" in capsys.readouterr().err
    assert not (run / "config.json").exists()
