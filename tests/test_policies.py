"""Policy files: what is saved is what acts, damage is refused, and shipped ones keep their word."""

import json
import subprocess
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import mimex.envs  # noqa: F401
from mimex import load_policy
from mimex.commands.build import make_env
from mimex.commands.pretrained import load_pretrained
from mimex.policies import FOLDER, MLPPolicy, card_path, names
from mimex.train.evaluate import evaluate, wilson

EPISODES = 16


def policy(**changes):
    draw = np.random.default_rng(0).standard_normal
    layers = tuple(
        (draw((wide, into)).astype(np.float32), draw(wide).astype(np.float32))
        for into, wide in ((5, 8), (8, 3))
    )
    usual = {
        "inputs": {"a": (2,), "b": (1, 3)},
        "mean": np.arange(5, dtype=np.float32),
        "scale": np.full(5, 0.5, np.float32),
        "clip": 2.0,
        "layers": layers,
        "activation": "tanh",
        "action_shape": (3,),
        "action_dtype": "float64",
        "bounds": np.array([[-2, 0, 1], [2, 1, 5]], np.float32),
        "card": {"task": "none"},
    }
    return MLPPolicy(**usual | changes)


def observations(count):
    draw = np.random.default_rng(1).standard_normal
    return {"b": draw((count, 1, 3)), "a": 9 * draw((count, 2))}


def test_a_batch_is_its_rows_and_actions_keep_their_bounds_and_dtype():
    batch = observations(50)
    actions = policy()(batch)
    assert actions.shape == (50, 3)
    assert actions.dtype == np.float64
    one = policy()({name: part[7] for name, part in batch.items()})
    np.testing.assert_allclose(one, actions[7], atol=1e-6)
    assert (actions >= [-2, 0, 1]).all()
    assert (actions <= [2, 1, 5]).all()
    assert (actions == [2, 1, 5]).any()  # clipped, not squashed


def test_discrete_actions_count_from_the_first():
    discrete = policy(bounds=None, first_action=4, action_shape=(), action_dtype="int64")
    actions = discrete(observations(50))
    assert set(actions.tolist()) == {4, 5, 6}
    assert actions.dtype == np.int64


def test_a_file_acts_as_the_rounded_policy(tmp_path):
    path = tmp_path / "mine.safetensors"
    policy().save(path)
    loaded, batch = load_policy(path), observations(50)
    np.testing.assert_array_equal(loaded(batch), policy().rounded()(batch))
    assert loaded.card["task"] == "none"
    assert path.stat().st_size < 1000


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        ({"a": np.zeros(2)}, "b is missing"),
        ({"a": np.zeros(3), "b": np.zeros((1, 3))}, r"a has shape \(3,\)"),
        ({"a": np.zeros((4, 2)), "b": np.zeros((1, 3))}, r"b has shape \(1, 3\)"),
    ],
)
def test_another_observation_is_named(observation, words):
    with pytest.raises(ValueError, match=words):
        policy()(observation)


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "mine.safetensors"
    policy().save(path)
    card = json.loads(card_path(path).read_text())
    weights = path.read_bytes()
    path.write_bytes(weights[:-1] + b"\x01")
    with pytest.raises(ValueError, match=r"the sha256 of .* differs"):
        load_policy(path)
    path.write_bytes(weights)
    for network in ({}, {**card["network"], "activation": "sin"}, {**card["network"], "inputs": 3}):
        card_path(path).write_text(json.dumps(card | {"network": network}))
        with pytest.raises(ValueError, match="is not a policy file"):
            load_policy(path)
    card_path(path).unlink()
    with pytest.raises(FileNotFoundError):
        load_policy(path)


def test_weights_that_float16_cannot_hold_are_not_written(tmp_path):
    (weight, bias), last = policy().layers
    large = policy(layers=((weight * 1e6, bias), last))
    with pytest.raises(ValueError, match="not finite"):
        large.save(tmp_path / "large.safetensors")
    assert not list(tmp_path.iterdir())


def test_arrays_that_do_not_fit_each_other_are_refused():
    with pytest.raises(ValueError, match="shapes"):
        replace(policy(), mean=np.zeros(4, np.float32))


def test_an_unknown_name_lists_the_shipped_ones():
    with pytest.raises(ValueError, match=r"no pretrained policy 'FrankaReech'.*FrankaReach"):
        load_policy("FrankaReech")


def test_a_shipped_policy_needs_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import mimex, numpy\n"
        "print(mimex.load_policy('FrankaReach')(numpy.zeros(27)).shape)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "(9,)\n"


def test_shipped_policies_are_at_most_three_megabytes_with_a_full_card():
    assert {"FrankaReach", "KukaReach"} <= set(names())
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 3e6
    for name in names():
        card = load_policy(name).card
        told = {"task", "reward", "steps", "seed", "success", "command", "version", "episodes"}
        assert told <= card.keys()
        assert name == card["task"] + ("" if card["reward"] == "dense" else f"-{card['reward']}")
        assert card["command"].startswith(f"mimex train {card['task']}")
        assert "/" not in card["command"]  # no path of a machine
        success = card["success"]
        interval = wilson(success["successes"], card["episodes"])
        assert interval == pytest.approx((success["low"], success["high"]))


@pytest.mark.parametrize("name", names())
def test_a_shipped_policy_does_what_its_card_says(name):
    config, shipped, _ = load_pretrained(name)
    env = make_env(config, EPISODES)
    result = evaluate(env, shipped, seed=5)
    env.close()
    # The rates of the card and of a few other episodes: their intervals meet.
    assert wilson(result.successes, EPISODES)[1] >= shipped.card["success"]["low"]
    assert result.successes / EPISODES >= shipped.card["success"]["rate"] - 0.35


def test_the_loop_of_a_single_environment():
    env = gymnasium.make("mimex/FrankaReach-v0", reward="dense")
    reach, info = load_policy("FrankaReach"), {}
    observation, _ = env.reset(seed=0)
    ended = False
    while not ended:
        observation, _, terminated, truncated, info = env.step(reach(observation))
        ended = terminated or truncated
    assert info["success"]
