from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tests.parts import actions, reader

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.agents.encoders import VectorEncoder
from mimex.agents.ppo import PPO, PPOSettings
from mimex.envs.experts import expert_for
from mimex.train.evaluate import evaluate, rollout_images, wilson


def agent():
    torch.manual_seed(0)
    return PPO(VectorEncoder(reader(27)), actions(9), PPOSettings())


def reach(num_envs, **settings):
    return gymnasium.make_vec("mimex/FrankaReach-v0", num_envs=num_envs, threads=1, **settings)


def test_wilson_agrees_with_published_numbers():
    # Newcombe (1998), table I: 81 of 263, and 0 of 20.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson(20, 20)[1] == 1.0


def test_wilson_refuses_what_cannot_be():
    with pytest.raises(ValueError, match=r"k \(3\) must not be greater than n \(2\)"):
        wilson(3, 2)


def test_the_same_seed_gives_the_same_episodes_and_leaves_the_agent_alone():
    env, ppo = reach(3, episode_steps=10), agent()
    before = ppo.generator.get_state()
    results = [evaluate(env, ppo, seed=seed) for seed in (1, 1, 2)]
    assert results[0] == results[1] != results[2]
    assert torch.equal(ppo.generator.get_state(), before)


def test_each_environment_counts_with_its_first_episode():
    env, ppo = reach(3, episode_steps=10, reward={"goal_bonus": 0.0}), agent()
    result = evaluate(env, ppo, seed=1)
    assert (result.episodes, result.mean_steps, result.mean_return) == (3, 10.0, 0.0)


def test_progress_is_reported_after_each_step():
    made = []
    evaluate(reach(3, episode_steps=10), agent(), seed=1, progress=made.append)
    assert made == list(range(1, 11))


class ExpertPolicy:
    """The task's scripted solution, in the shape of an agent."""

    def __init__(self, env):
        self.env, self.expert = env, expert_for("FrankaReach")(env)

    def policy(self, observation):
        return self.expert.act(self.env)


def test_successes_are_counted():
    env = reach(3)
    result = evaluate(env, ExpertPolicy(env), seed=0)
    assert result.successes == 3
    assert result.metrics()["eval/success"] == 1.0
    assert result.metrics()["eval/success_low"] == pytest.approx(wilson(3, 3)[0])


class Still:
    """A policy that stays where it is."""

    def policy(self, observation):
        return np.zeros(len(observation), np.int64)


def test_a_task_that_reports_success_on_winning_alone_may_be_known_to_report_it():
    make = partial(gymnasium.make, "tests.tasks:Winning-v0")
    env = SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    assert "eval/success" not in evaluate(env, Still(), seed=0).metrics()
    assert evaluate(env, Still(), seed=0, reports_success=True).metrics()["eval/success"] == 0.0


@pytest.mark.render
def test_images_show_each_step_of_an_episode():
    env = reach(1, episode_steps=4, render_mode="rgb_array")
    frames = list(rollout_images(env, agent(), seed=0))
    env.close()
    assert len(frames) == 4
    assert frames[0].dtype == np.uint8
    assert frames[0].shape[2] == 3
