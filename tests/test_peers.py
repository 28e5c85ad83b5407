"""The peers meet the environments as their authors say, and the table says what the runs did."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from benchmarks import peers, peers_report

import mimex.envs  # noqa: F401 (registers the tasks)

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
    pytest.importorskip("tensordict")
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
def test_every_library_trains_and_is_evaluated_alike(library, monkeypatch, tmp_path):
    arguments = ["--libraries", library, "--tasks", "FrankaReach", "--steps", "1000"]
    small = ["--envs", "32", "--every", "1000", "--results", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["peers", *arguments, *small])
    peers.main()
    curves, made = peers_report.load(tmp_path)
    ((curve,),) = curves["FrankaReach"].values()
    assert len(curve) == 2
    assert curve[1, peers_report.STEPS] >= 1000
    assert curve[1, peers_report.MINUTES] > 0
    assert [name.split()[0] for name in made] == [library]


def test_the_table_compares_at_the_same_steps_and_the_same_minutes():
    quick = np.array([(0, 0, 0), (1e6, 1, 0.4), (2e6, 2, 1.0)])
    slow = np.array([(0, 0, 0), (1e6, 4, 0.6), (2e6, 8, 0.8)])
    curves = {"FrankaPick": {"mimex": [quick], "sb3": [slow, quick]}}
    over_steps = peers_report.table(curves, peers_report.STEPS)
    assert over_steps[2] == (
        "| FrankaPick | mimex | 1 | 2.00M | 20% | 40% | 70% | 100% | 2.00M | 2.00M |"
    )
    assert over_steps[3].endswith("| 25% | 50% | 70% | 90% | 1.50M | 2.00M (1 of 2) |")
    over_minutes = peers_report.table(curves, peers_report.MINUTES)
    assert over_minutes[2].endswith("| 2.0 | 20% | 40% | 70% | 100% | 2.0 | 2.0 |")
    assert over_minutes[3].endswith("| 65% | 3.0 | 2.0 (1 of 2) |")  # 30 % and 100 % at two minutes
