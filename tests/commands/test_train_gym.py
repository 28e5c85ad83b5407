"""Environments of Gymnasium and of the user's own, by their ids."""

import importlib.util
import json
import sys

import pytest
from tests.processes import rows

from mimex.cli import main
from mimex.commands.build import make_env, make_training
from mimex.config import parse

OWN = "gym/tests.tasks:"


def command(task, run, agent, rounds, *more):
    """A small run of so many rows of metrics, evaluated at its end."""
    small = {
        "ppo": ("--envs", "4", "--loop.rollout-steps", "8", "--ppo.minibatches", "2",
                "--ppo.epochs", "1", "--loop.bonus-minibatch", "16"),
        "drqv2": ("--off-policy.report-every", "32", "--drqv2.seed-steps", "16",
                  "--drqv2.random-steps", "16", "--drqv2.batch", "8", "--drqv2.hidden", "16",
                  "--drqv2.features", "trunk"),
    }[agent]  # fmt: skip
    return [
        *("train", task, "--out", str(run), "--agent", agent, "--steps", str(32 * rounds)),
        *("--eval.episodes", "2", "--eval.every", "64", "--track.checkpoint-every", "32"),
        *("--threads", "1"),
        *small,
        *more,
    ]


@pytest.mark.parametrize(
    ("task", "agent"),
    [
        ("gym/CartPole-v1", "ppo"),
        ("gym/FrozenLake-v1", "ppo"),
        ("gym/Pendulum-v1", "drqv2"),
        (f"{OWN}Dict-v0", "ppo"),
        (f"{OWN}DictBox-v0", "drqv2"),
        (f"{OWN}MultiDiscrete-v0", "ppo"),
        (f"{OWN}MultiBinary-v0", "ppo"),
        (f"{OWN}Picture-v0", "ppo"),
        (f"{OWN}Both-v0", "drqv2"),
    ],
)
def test_any_environment_trains_and_continues(task, agent, tmp_path, capsys):
    run = tmp_path / "run"
    more = ("--bonus", "mimex", "--gym.episode-steps", "15")
    assert main(command(task, run, agent, 4, *more)) == 0
    last = rows(run)[-1]
    assert last["bonus/mean"] > 0
    assert last["train/episode_steps"] <= 15
    assert ("eval/success" in last) == task.startswith(OWN)
    config = json.loads((run / "config.json").read_text())
    assert (config["agent"], config["reward"], config["observation"]) == (agent, "task", "task")
    before = rows(run)
    capsys.readouterr()
    assert main(command(task, run, agent, 6, *more)) == 0
    assert "with new episodes: gym/" in capsys.readouterr().out.replace("\n", " ")
    assert rows(run)[: len(before)] == before
    assert rows(run)[-1]["step"] == 6 * 32
    assert rows(run)[-1]["train/episode_steps"] <= 15  # nothing was added to the one cut off


def test_a_run_saved_within_a_row_continues_with_new_episodes(tmp_path):
    """As after SIGTERM: steps that were to be scored for a map are gone with their episodes."""
    arguments = command("gym/Pendulum-v1", tmp_path, "drqv2", 4, "--bonus", "rnd")
    config = parse(arguments[1:]).checked()
    first, second = make_training(config), make_training(config)
    first._begin(first.seed)
    assert [first.advance(10**9) is None for _ in range(40)].count(False) == 1  # 8 in a new row
    first.agent.save()
    assert not second.load_state_dict(first.state_dict())
    rows_made = list(second.train(config.steps))
    assert second.step == config.steps
    assert [row["train/updates"] for row in rows_made] == sorted(
        {row["train/updates"] for row in rows_made}
    )


def test_a_video_needs_what_the_environment_draws_with(tmp_path, capsys):
    run, video = tmp_path / "run", tmp_path / "video.mp4"
    assert main(command("gym/Pendulum-v1", run, "ppo", 2, "--gym.episode-steps", "5")) == 0
    capsys.readouterr()
    drawn = main(["play", str(run), "--video", str(video)]) == 0
    said = capsys.readouterr()
    assert drawn == (importlib.util.find_spec("pygame") is not None)
    assert drawn or "pip install" in said.err
    assert drawn == video.exists()
    assert said.out.startswith("episode 1: return -") == drawn
    assert (main(["eval", str(run), "--episodes", "2", "--video", str(video)]) == 0) == drawn


def test_a_module_in_the_current_folder_is_found(tmp_path, monkeypatch, capsys):
    """As with the console script, whose sys.path does not have the current folder."""
    (tmp_path / "found_here.py").write_text("from tests.tasks import KINDS\n")
    monkeypatch.chdir(tmp_path)
    elsewhere = [path for path in sys.path if path not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", list(elsewhere))
    assert main(command("gym/found_here:Numbers-v0", tmp_path / "run", "ppo", 2)) == 0
    assert sys.path == [*elsewhere, str(tmp_path)]  # last: it hides nothing that is installed
    assert main(command("gym/not_here:Numbers-v0", tmp_path / "other", "ppo", 2)) == 1
    assert "run mimex from its folder" in capsys.readouterr().err


def test_an_environment_without_a_limit_needs_one(tmp_path, capsys):
    assert main(command(f"{OWN}Endless-v0", tmp_path, "ppo", 2)) == 1
    assert "--gym.episode-steps" in capsys.readouterr().err
    assert main(command(f"{OWN}Endless-v0", tmp_path, "ppo", 2, "--gym.episode-steps", "9")) == 0


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("gym/CartPole-v1", "the actions are discrete, but drqv2 needs"),
        (f"{OWN}MultiDiscrete-v0", "the actions are discrete, but drqv2 needs"),
        (f"{OWN}DictAction-v0", "gymnasium.wrappers.TransformAction"),
        ("gym/Blackjack-v1", "flatten it with gymnasium's FlattenObservation"),
    ],
)
def test_what_an_agent_cannot_play_is_reported(task, words, tmp_path, capsys):
    agent = "drqv2" if "drqv2" in words else "ppo"
    assert main(command(task, tmp_path, agent, 2, "--gym.episode-steps", "9")) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "config.json").exists()


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, capsys):
    if importlib.util.find_spec("Box2D") is not None:
        pytest.skip("Box2D is installed")
    assert main(command("gym/LunarLander-v3", tmp_path, "ppo", 2)) == 1
    error = capsys.readouterr().err
    assert "gym/LunarLander-v3" in error
    assert "pip install" in error


def test_environments_reset_in_the_same_step():
    env = make_env(parse([f"{OWN}Numbers-v0", "--gym.episode-steps", "3"]), 2)
    env.reset(seed=0)
    for _ in range(3):
        observation, _, _, truncated, info = env.step(env.action_space.sample() * 0)
    assert truncated.all()
    assert abs(info["final_obs"][0][0] - observation[0, 0]) > 1e-4  # the next episode's first
    env.close()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("NextStep-v0", "autoreset_mode is NEXT_STEP"),
        ("Disabled-v0", "autoreset_mode is DISABLED"),
        ("Silent-v0", "autoreset_mode is not in its metadata"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*missing AutoresetMode")
def test_vector_environments_that_do_not_reset_in_the_same_step_are_refused(
    task, words, tmp_path, capsys
):
    run = tmp_path / "run"
    assert main(command(f"{OWN}{task}", run, "ppo", 4)) == 1
    error = capsys.readouterr().err
    assert f"{OWN}{task}" in error
    assert words in error
    assert "SAME_STEP" in error
    assert "entry_point" in error
    assert [path.name for path in run.iterdir()] == [".lock"]


def test_vector_environments_that_reset_in_the_same_step_are_made():
    env = make_env(parse([f"{OWN}SameStep-v0"]), 2)
    assert env.num_envs == 2
    env.close()


def test_vector_environments_of_our_own_are_made_with_their_arguments(tmp_path, capsys):
    sea = "gym/mimex/DeepSea-v0"
    assert make_env(parse([sea, "--gym.arguments", '{"size": 4}']), 2).episode_steps == 4
    assert main(command(sea, tmp_path, "ppo", 2, "--gym.arguments", '{"sze": 4}')) == 1
    error = capsys.readouterr().err
    assert "--gym.arguments" in error
    assert "sze" in error


@pytest.mark.parametrize("task", ["End-v0", "Winning-v0"])
def test_success_that_is_not_reported_at_every_step_is_counted(task, tmp_path):
    more = ("--gym.episode-steps", "25", "--seed", "1")
    assert main(command(f"{OWN}{task}", tmp_path, "ppo", 24, *more)) == 0
    found = [row["train/success"] for row in rows(tmp_path) if "train/success" in row]
    assert found
    assert all(0 <= rate <= 1 for rate in found)
    assert 0 < max(found) < 1
    assert "train/success" in rows(tmp_path)[-1]
    assert "eval/success" in rows(tmp_path)[-1]
