"""Exported policies act as the run's own do; what cannot be exported is refused with a remedy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tests.commands.test_train_gym import command
from tests.test_cli import TINY

import mimex
from mimex.cli import main
from mimex.commands.build import load_agent, make_env

ROOT = Path(__file__).parents[2]
OWN = "gym/tests.tasks:"
TRUST = ["--trust-modules", "tests.tasks"]


@pytest.fixture(scope="module")
def reach(tmp_path_factory):
    """A run of two updates, with statistics of observations that matter."""
    run = tmp_path_factory.mktemp("reach") / "run"
    assert main(["train", "FrankaReach", "--steps", "96", "--out", str(run), *TINY]) == 0
    return run


def seen(run, count=64, trust=()):
    """The run's agent, and observations of random actions, some of them far out."""
    config, agent, _ = load_agent(run, "latest", trust)
    env = make_env(config, count)
    observation, _ = env.reset(seed=3)
    env.action_space.seed(3)
    for _ in range(5):
        observation = env.step(env.action_space.sample())[0]
    env.close()
    return agent, observation


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def outputs(path, observation):
    parts = observation if isinstance(observation, dict) else {"observation": observation}
    given = {name: np.asarray(part, np.float32) for name, part in parts.items()}
    (actions,) = session(path).run(None, given)
    return actions


def test_onnx_of_a_robot_equals_torch(reach, tmp_path, capsys):
    path = tmp_path / "policy.onnx"
    assert main(["export", str(reach), str(path)]) == 0
    assert "policy.onnx" in capsys.readouterr().out
    agent, observation = seen(reach)
    observation[0] *= 1e4  # beyond both clips
    wanted, found = agent.policy(observation), outputs(path, observation)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.abs(wanted).std() > 1e-3
    assert found.dtype == wanted.dtype
    assert outputs(path, observation[:1]).shape == (1, 9)  # any batch
    card = json.loads(session(path).get_modelmeta().custom_metadata_map["card"])
    assert (card["task"], card["steps"]) == ("FrankaReach", 96)


@pytest.mark.parametrize("activation", ["elu", "tanh", "relu"])
def test_onnx_of_every_activation_and_of_bounds_equals_torch(activation, tmp_path):
    run, path = tmp_path / "run", tmp_path / "policy.onnx"
    line = command("gym/Pendulum-v1", run, "ppo", 4)
    assert main([*line, "--ppo.activation", activation]) == 0
    assert main(["export", str(run), str(path)]) == 0
    agent, observation = seen(run)
    wanted = agent.policy(observation)
    np.testing.assert_allclose(outputs(path, observation), wanted, atol=1e-5)


def test_onnx_of_discrete_actions_equals_torch(tmp_path):
    run, path = tmp_path / "run", tmp_path / "policy.onnx"
    assert main(command("gym/CartPole-v1", run, "ppo", 4)) == 0
    assert main(["export", str(run), str(path)]) == 0
    agent, observation = seen(run)
    wanted = agent.policy(observation)
    assert 0 < wanted.mean() < 1
    np.testing.assert_array_equal(outputs(path, observation), wanted)


def test_a_safetensors_file_has_a_card_and_is_evaluated_and_played(
    reach, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)  # no video is drawn here
    assert main(["export", str(reach), "mine.safetensors", "--episodes", "3"]) == 0
    assert "of 3 episodes" in capsys.readouterr().out
    card = json.loads((tmp_path / "mine.json").read_text())
    assert card["world"] == {"episode_steps": 10}
    assert card["command"].split()[0] == "mimex"
    assert str(tmp_path) not in card["command"]
    agent, observation = seen(reach)
    mine = mimex.load_policy("mine.safetensors")
    np.testing.assert_allclose(mine(observation), agent.policy(observation), atol=5e-3)  # float16
    assert main(["eval", "mine.safetensors", "--pretrained", "--episodes", "2"]) == 0
    assert "2 episodes of 10 steps" in capsys.readouterr().out
    assert main(["play", "mine.safetensors", "--pretrained"]) == 0
    assert "in 10 steps" in capsys.readouterr().out


def test_a_dict_of_vectors_is_one_input_each(tmp_path):
    run, path = tmp_path / "run", tmp_path / "policy.onnx"
    assert main(command(f"{OWN}DictBox-v0", run, "ppo", 4)) == 0
    assert main(["export", str(run), str(path), *TRUST]) == 0
    agent, observation = seen(run, trust=TRUST[1:])
    assert {part.name for part in session(path).get_inputs()} == observation.keys()
    wanted = agent.policy(observation)
    np.testing.assert_allclose(outputs(path, observation), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (f"{OWN}Picture-v0", "an image"),
        (f"{OWN}MultiDiscrete-v0", "export only supports Box and Discrete"),
        ("gym/FrozenLake-v1", "export only supports vector"),
    ],
)
def test_spaces_that_are_not_exported_are_named(task, words, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(command(task, run, "ppo", 2)) == 0
    assert main(["export", str(run), str(tmp_path / "policy.onnx"), *TRUST]) == 1
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["policy.txt"], "must end in .onnx or .safetensors"),
        (["policy.safetensors", "--episodes", "0"], "--episodes is 0"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(reach, arguments, words, tmp_path, capsys):
    name, *more = arguments
    assert main(["export", str(reach), str(tmp_path / name), *more]) == 1
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_other_agents_are_refused(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(command("gym/Pendulum-v1", run, "drqv2", 4)) == 0
    assert main(["export", str(run), str(tmp_path / "policy.onnx")]) == 1
    assert "export needs ppo" in capsys.readouterr().err


def test_without_onnx_the_extra_is_named(reach, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", str(reach), str(tmp_path / "policy.onnx")]) == 1
    assert "pip install 'mimex[onnx]'" in capsys.readouterr().err


def test_no_episodes_of_a_pretrained_policy_are_refused(capsys):
    assert main(["eval", "FrankaReach", "--pretrained", "--episodes", "0"]) == 1
    assert "--episodes is 0" in capsys.readouterr().err


def test_play_takes_one_source_of_actions(capsys):
    assert main(["play", "FrankaReach", "--pretrained", "--agent", "zero"]) == 1
    assert "leave one out" in capsys.readouterr().err


def test_the_player_of_the_examples_needs_no_torch(reach, tmp_path):
    path, player = tmp_path / "policy.onnx", ROOT / "examples" / "play_onnx.py"
    assert len(player.read_text().splitlines()) <= 33
    assert main(["export", str(reach), str(path)]) == 0
    code = (
        "import sys, runpy; sys.modules['torch'] = None\n"
        f"sys.argv = ['play', {str(path)!r}, 'FrankaReach']\n"
        f"runpy.run_path({str(player)!r}, run_name='__main__')"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ
    )
    assert run.stdout.count("return") == 3
