"""Single findings of the doctor; the table of set-ups and checks is in test_table.py."""

from copy import deepcopy
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv, VectorWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from mimex import E3B, RND, BonusScale, Disagreement, MIMEx, Window, WindowTracker
from mimex.doctor import diagnose
from mimex.doctor.evidence import gather
from mimex.doctor.novelty import NOVELTY, check_novelty
from mimex.doctor.update import REACHES, RIGHT_STEP, SHARE, check_share
from mimex.doctor.windows import ACTIONS, ENDS, INSIDE
from mimex.interop.sb3 import BonusVecEnv
from mimex.interop.vector import wrap_vector


def failed(checks):
    return {check.name for check in checks if check.status == "fail"}


def test_a_bonus_added_after_the_returns_is_caught():
    """Fault of a peer: Stable-Baselines3's rollout callback comes after the returns."""

    class TooLate(BaseCallback):
        def __init__(self, bonus):
            super().__init__()
            self.bonus = bonus

        def _on_step(self):
            return True

        def _on_rollout_end(self):
            buffer = self.model.rollout_buffer
            window = Window(np.repeat(buffer.observations.reshape(-1, 1, 6), 5, axis=1))
            buffer.rewards += self.bonus.reward(window).numpy().reshape(buffer.rewards.shape)

    def setup(make_env, bonus):
        env = DummyVecEnv([make_env] * 2)
        model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu")
        return model.learn(64, callback=TooLate(bonus))

    assert REACHES in failed(diagnose(setup))


def test_paying_for_the_steps_that_only_reset_is_caught():
    class PaysResets(VectorWrapper):
        def __init__(self, env, bonus):
            super().__init__(env)
            self.bonus = bonus
            self.tracker = WindowTracker(env.num_envs, bonus.length, 6, 3)

        def reset(self, **kwargs):
            observations, info = self.env.reset(**kwargs)
            self.over = np.ones(self.num_envs, bool)
            self.tracker.push(observations, self.over, np.zeros((self.num_envs, 3)))
            self.over = ~self.over
            return observations, info

        def step(self, actions):
            observations, rewards, terminated, truncated, info = self.env.step(actions)
            window = self.tracker.push(observations, self.over, np.eye(3)[actions])
            self.over = terminated | truncated
            paid = self.bonus.learn(window)[0].numpy()
            return observations, rewards + paid, terminated, truncated, info

    def setup(make_env, bonus):
        return PaysResets(SyncVectorEnv([make_env] * 2), bonus)

    assert failed(diagnose(setup)) == {ENDS}


def test_returns_computed_without_the_bonus_are_caught_in_a_loop_of_ones_own():
    def setup(make_env, bonus, include=False):
        env = make_env()
        observation, _ = env.reset()
        rewards, observations, rows = [], [], []
        for _ in range(60):
            rows = [*rows, observation][-5:]
            observations.append(observation)
            observation, reward, terminated, truncated, _ = env.step(0)
            padded = np.zeros((1, 5, 6), np.float32)
            padded[0, 5 - len(rows) :] = rows
            valid = np.arange(5)[None] >= 5 - len(rows)
            paid = float(bonus.learn(Window(padded, valid))[0][0])
            rewards.append(reward + include * paid)
            if terminated or truncated:
                observation, _ = env.reset()
                rows = []
        returns = np.cumsum(rewards[::-1])[::-1]
        return {"targets": returns, "rewards": np.array(rewards), "observations": observations}

    assert failed(diagnose(setup)) == {REACHES, RIGHT_STEP}
    right = diagnose(lambda make_env, bonus: setup(make_env, bonus, include=True))
    assert not failed(right)
    assert "acted on" in next(c.finding for c in right if c.name == ENDS)
    assert "no actions" in next(c.finding for c in right if c.name == ACTIONS)


def own(bonus, beta=0.1, wrapper=lambda env: env):
    chosen = bonus

    def setup(make_env=lambda: gymnasium.make("CartPole-v1"), bonus=None):
        env = SyncVectorEnv([lambda: wrapper(make_env())] * 2)
        # A scale measures its task at the start: each call has its own, as a script would.
        return wrap_vector(env, bonus or chosen(), beta=deepcopy(beta), learn_every=32)

    return setup


def statuses(checks):
    return {check.name: check.status for check in checks}


def test_the_bonus_is_as_it_was_after_its_examination():
    bonus = RND(4)
    diagnose(own(lambda: bonus))
    assert bonus.steps == 17  # some 570 transitions in steps of 32, and none of the doctor's


@pytest.mark.parametrize("kind", [Disagreement, E3B])
def test_bonuses_of_every_kind_are_examined(kind):
    found = statuses(diagnose(own(kind)))
    assert found[NOVELTY] == "pass"
    assert "fail" not in found.values()


class Fading(RND):
    """Falls with every step of learning, on what was seen and on what was not alike."""

    def reward(self, window):
        return torch.full((len(window),), 1 / (1 + self.steps))


@pytest.mark.parametrize("kind", [MIMEx, RND, Fading])
def test_contrast_is_measured_on_the_users_own_data(kind):
    setup = own(lambda: kind(normalize=True))
    found = check_novelty(partial(gymnasium.make, "CartPole-v1"), gather(setup()))
    assert found.status == ("warn" if kind is Fading else "pass")
    assert "on your own data" in found.finding
    assert ("contrast, is 1" in found.finding) == (kind is Fading)
    assert bool(found.remedy) == (kind is Fading)


def test_rewards_of_very_different_size_are_warned_about():
    found = [check_share(gather(own(RND, beta=beta)())) for beta in (1e-4, 1e6)]
    assert [(check.name, check.status) for check in found] == [(SHARE, "warn")] * 2
    assert check_share(gather(own(MIMEx, beta=BonusScale(0.5))())).status == "pass"


def test_normalised_observations_make_the_window_checks_skip():
    def setup(make_env, bonus):
        env = gymnasium.wrappers.vector.NormalizeObservation(SyncVectorEnv([make_env] * 2))
        return wrap_vector(env, bonus)

    found = statuses(diagnose(setup))
    assert found[INSIDE] == found[RIGHT_STEP] == "skip"
    assert found[REACHES] == "pass"


def test_beta_zero_in_stable_baselines_is_caught():
    def setup(make_env, bonus):
        env = BonusVecEnv(DummyVecEnv([make_env] * 2), bonus, beta=0.0)
        torch.manual_seed(1)
        return PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu").learn(64)

    assert REACHES in failed(diagnose(setup))
