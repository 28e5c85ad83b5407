"""Other libraries train on our environments as their authors intend."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

import mimex.envs  # noqa: F401 (registers the tasks)
from benchmarks import curves, peers

LENGTH = 3


@pytest.fixture
def env():
    return gymnasium.make_vec(
        "mimex/FrankaReach-v0", num_envs=2, reward="dense", episode_steps=LENGTH, threads=1
    )


def test_stable_baselines_learns_what_was_seen_when_time_was_up(env):
    adapted = peers.sb3_env(env, seed=0, reward_scale=0.5)
    twin = gymnasium.make_vec(env.spec, num_envs=2)
    adapted.reset()
    twin.reset(seed=0)
    actions = np.full((2, 9), 0.1, np.float32)
    for step in range(1, LENGTH + 1):
        observation, rewards, dones, infos = adapted.step(actions)
        expected, paid, _, truncated, info = twin.step(actions)
        np.testing.assert_array_equal(observation, expected)
        np.testing.assert_array_equal(rewards, 0.5 * paid)
        assert dones.all() == truncated.all() == (step == LENGTH)
    assert [i["TimeLimit.truncated"] for i in infos] == [True, True]
    np.testing.assert_array_equal(infos[1]["terminal_observation"], info["final_obs"][1])


def test_rsl_rl_is_told_of_time_outs_and_paid_by_the_second(env):
    adapted = peers.RslEnv(env, seed=0)
    ages = env.unwrapped.get_state()["steps"]
    actions = torch.zeros(2, adapted.num_actions)
    state = env.unwrapped.get_state()
    paid = env.step(actions.numpy())[1]
    env.unwrapped.set_state(state)
    observation, rewards, dones, extras = adapted.step(actions)
    assert observation["policy"].shape == (2, env.single_observation_space.shape[0])
    np.testing.assert_allclose(rewards, paid / 60, rtol=1e-6)
    np.testing.assert_array_equal(dones.bool(), ages + 1 >= LENGTH)
    np.testing.assert_array_equal(extras["time_outs"], dones.bool())


@pytest.mark.parametrize("library", ["mimex", "sb3-parallel"])
def test_every_library_trains_and_leaves_a_run_folder(library, monkeypatch, tmp_path):
    arguments = ["--libraries", library, "--tasks", "FrankaReach", "--steps", "1000"]
    small = ["--envs", "32", "--every", "1000", "--out", str(tmp_path / "runs")]
    monkeypatch.setattr("sys.argv", ["peers", *arguments, *small])
    peers.main()
    monkeypatch.setattr(curves, "FOLDER", tmp_path)
    [((_, task, _, seed), run)] = curves.read(curves.collect("peers", [tmp_path / "runs"])).items()
    assert (task, seed) == ("FrankaReach", 0)
    assert run.columns["step"][-1] >= 1000
    assert run.columns["time/cpu_seconds"][-1] > 0
    assert 0 <= run.columns["eval/success"][-1] <= 1
    made = (tmp_path / "runs" / f"FrankaReach-{library}-0" / "metrics.jsonl").stat().st_mtime_ns
    peers.main()  # what is finished is skipped
    again = (tmp_path / "runs" / f"FrankaReach-{library}-0" / "metrics.jsonl").stat().st_mtime_ns
    assert again == made
