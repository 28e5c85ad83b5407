"""Alarms: each is provoked, said once, and stays silent where all is well."""

import json

import gymnasium
import pytest
import torch
from tests.parts import actions, reader

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex import BonusScale, NoBonus
from mimex.agents.encoders import VectorEncoder
from mimex.agents.on_policy import LoopSettings
from mimex.agents.ppo import PPO, PPOAgent, PPOSettings
from mimex.track.clock import Clock
from mimex.train.episodes import Episodes
from mimex.train.health import RECENT, Health, all_warnings, health_after
from mimex.train.runner import Training

WELL = {
    "ppo/approx_kl": 0.01,
    "ppo/lr": 1e-3,
    "ppo/std": 1.0,
    "ppo/explained_variance": 0.8,
    "train/episode_steps": 400.0,
    "train/success": 0.0,
}


def said(*changes, first=WELL):
    """What is said over a healthy time, then one with each of the changes in turn."""
    health = Health()
    words = []
    for change in ({}, *changes):
        for _ in range(2 * RECENT):
            words += health.check(first | change)
    return words


def test_healthy_training_has_no_warnings():
    assert said({"ppo/approx_kl": 0.005, "ppo/std": 0.3, "train/episode_steps": 300.0}) == []


@pytest.mark.parametrize(
    ("change", "what", "remedy"),
    [
        ({"ppo/approx_kl": 1e-6}, "stopped changing", "--ppo.lr-schedule adaptive"),
        ({"train/episode_steps": 15.0}, "shorter, from 400 steps to", "--bonus"),
        ({"ppo/std": 0.1}, "std has collapsed, from 1 to 0.1", "--ppo.min-std"),
        ({"ppo/explained_variance": -0.2}, "explains nothing", "--ppo.normalize-values"),
    ],
)
def test_each_alarm_is_given_once_with_its_remedy(change, what, remedy):
    (words,) = said(change, {}, change)
    assert what in words
    assert remedy in words


def test_a_policy_may_rest_when_its_rate_has_run_out():
    assert said({"ppo/approx_kl": 1e-6, "ppo/lr": 1e-6}) == []


def test_short_episodes_and_a_small_std_are_no_fault_of_one_that_succeeds():
    assert said({"train/success": 0.9, "train/episode_steps": 50.0, "ppo/std": 0.05}) == []


def test_one_that_has_solved_its_task_may_stand_still_with_returns_that_are_all_alike():
    sure = {"ppo/approx_kl": 1e-6, "ppo/explained_variance": 0.0}
    assert said({"train/success": 0.95}, sure | {"train/success": 0.95}) == []
    assert len(said({"train/success": 0.8}, sure | {"train/success": 0.8})) == 2


UNKNOWN = {name: value for name, value in WELL.items() if name != "train/success"}
"""Of a task that does not report success."""


def test_a_solved_task_that_does_not_report_success_is_no_alarm():
    """As MountainCar: a reward of -1 for each step, and shorter episodes are what it asks for."""
    solved = {"train/episode_steps": 100.0, "train/return": -100.0, "ppo/std": 0.1}
    sure = solved | {"ppo/approx_kl": 1e-6, "ppo/explained_variance": 0.0}
    assert said(solved, sure, first=UNKNOWN | {"train/return": -400.0}) == []


def test_a_task_that_does_not_report_success_and_whose_return_does_not_rise_is_one():
    first = UNKNOWN | {"train/return": 0.0}
    (words,) = said({"ppo/std": 0.1}, first=first)
    assert "collapsed" in words
    (words,) = said({"train/return": 10.0}, {"train/return": 2.0, "ppo/std": 0.1}, first=first)
    assert "collapsed" in words


def test_a_remedy_that_not_every_task_has_says_which_do():
    (words,) = said({"train/episode_steps": 15.0})
    assert "on PixMC-Sparse --reward dense" in words


def test_one_bad_update_is_no_alarm():
    health = Health()
    rows = [WELL] * RECENT + [WELL | {"ppo/explained_variance": -1.0}] + [WELL] * RECENT
    assert [words for row in rows for words in health.check(row)] == []


def test_episodes_that_get_short_at_once_are_reported():
    """As on sparse FrankaReach with 512 environments: 61 steps at best, 19 after 20 updates."""
    lengths = [15.0, 35.0, 50.0, 60.0, 61.0, 61.0, 60.0, 58.0, *range(55, 20, -3), *[19.0] * 8]
    health = Health()
    rows = [{"train/episode_steps": float(steps), "train/success": 0.0} for steps in lengths]
    words = [w for row in rows for w in health.check(row)]
    assert len(words) == 1
    assert "shorter" in words[0]


def test_a_run_that_continues_does_not_say_it_again(tmp_path):
    rows = [WELL] * RECENT + [WELL | {"ppo/std": 0.01}] * 2 * RECENT
    metrics = tmp_path / "metrics.jsonl"
    assert health_after(metrics).check(WELL) == []
    metrics.write_text("".join(json.dumps({"step": i} | row) + "\n" for i, row in enumerate(rows)))
    assert health_after(metrics).check(rows[-1]) == []
    ((step, words),) = all_warnings({"step": i} | row for i, row in enumerate(rows))
    assert "collapsed" in words
    assert RECENT < step < 2.5 * RECENT


def run(**settings):
    """The metrics of a real run on sparse FrankaPick, of 64 simulations."""
    torch.manual_seed(0)
    env = gymnasium.make_vec("mimex/FrankaPick-v0", num_envs=64, threads=1, reward="sparse")
    chosen = {"shuffle": True, "epochs": 4} | settings
    agent = PPOAgent(
        PPO(VectorEncoder(reader(34), normalize=True), actions(9), PPOSettings(**chosen)),
        NoBonus(),
        BonusScale(),
        LoopSettings(rollout_steps=16),
        num_envs=64,
        horizon=10**9,
        seed=0,
        clock=Clock(),
    )
    callbacks = {"episodes": Episodes(64, remember=100)}
    yield from Training(env, agent, callbacks, seed=0, clock=agent.clock).train(10**9)
    env.close()


def alarms(rows, most):
    health = Health()
    for _, row in zip(range(most), rows, strict=False):
        words = health.check(row)
        if words:
            return words
    return []


@pytest.mark.slow
def test_a_real_agent_that_ends_its_episodes_is_reported():
    rows = run(lr_schedule="adaptive", normalize_values=True, clip_per_network=True, clip=0.2)
    assert any("episodes have become shorter" in words for words in alarms(rows, 400))


def test_a_real_policy_that_does_not_change_is_reported():
    (words, *_) = alarms(run(lr=1e-9), 2 * RECENT)
    assert "stopped changing" in words
