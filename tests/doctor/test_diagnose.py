"""Set-ups that are broken on purpose, each in one way that has been seen in the field."""

from collections import deque

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from mimex import RND, BonusScale, MIMEx, NoBonus, Window, WindowTracker
from mimex.doctor import all_well, diagnose
from mimex.doctor.builtin import builtin_setups
from mimex.doctor.diagnose import RUNS
from mimex.doctor.novelty import NOVELTY
from mimex.doctor.update import FINITE, REACHES, RIGHT_STEP, SHARE
from mimex.doctor.windows import ACTIONS, ENDS, INSIDE, WHOLE
from mimex.interop.sb3 import BonusVecEnv
from mimex.interop.vector import wrap_vector


def failed(checks):
    return {check.name for check in checks if check.status == "fail"}


@pytest.mark.parametrize("name", builtin_setups())
def test_our_own_wrappers_are_well(name):
    checks = diagnose(builtin_setups()[name])
    assert {check.status for check in checks} == {"pass"}
    assert len(checks) == 9
    assert all_well(checks)


class Naive(VectorWrapper):
    """A bonus wired by hand, right by default; faults are switched on by name."""

    def __init__(self, env, bonus, fault=None):
        super().__init__(env)
        self.bonus, self.fault = bonus, fault
        self.late = np.zeros(env.num_envs)

    def reset(self, **kwargs):
        observations, info = self.env.reset(**kwargs)
        self.history = [deque([row], self.bonus.length) for row in observations]
        self.led = [deque([self.one_hot(0) * 0], self.bonus.length) for _ in observations]
        return observations, info

    def one_hot(self, action):
        return np.eye(self.env.single_action_space.n)[action]

    def window(self):
        length = self.bonus.length
        features = np.zeros((self.num_envs, length, 6), np.float32)
        actions = np.zeros((self.num_envs, length, 3), np.float32)
        valid = np.zeros((self.num_envs, length), bool)
        for n, (rows, led) in enumerate(zip(self.history, self.led, strict=True)):
            features[n, length - len(rows) :] = rows
            actions[n, length - len(rows) :] = led
            valid[n, length - len(rows) :] = True
        if self.fault == "actions taken there":
            actions = np.roll(actions, -1, axis=1)
        if self.fault == "only half":
            valid[:, : length // 2] = False
        return Window(features, valid, actions)

    def step(self, actions):
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        over = terminated | truncated
        arrived = observations.copy()
        for n in np.flatnonzero(over):
            if self.fault != "final observation lost":
                arrived[n] = info["final_obs"][n]
        for n in range(self.num_envs):
            self.history[n].append(arrived[n])
            self.led[n].append(self.one_hot(actions[n]))
        paid = self.bonus.reward(self.window()).numpy()
        if self.fault == "paid a step late":
            paid, self.late = self.late, paid
        for n in np.flatnonzero(over):
            if self.fault != "window across episodes":
                self.history[n].clear()
                self.led[n].clear()
            self.history[n].append(observations[n])
            self.led[n].append(self.one_hot(0) * 0)
        return observations, rewards + 0.1 * paid, terminated, truncated, info


def naive(fault):
    def setup(make_env, bonus):
        vector = SyncVectorEnv([make_env] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
        return Naive(vector, bonus, fault)

    return setup


def test_wiring_by_hand_can_be_right():
    checks = diagnose(naive(None))
    assert not failed(checks)
    assert {c.name for c in checks if c.status == "skip"} == {FINITE, SHARE, NOVELTY}


@pytest.mark.parametrize(
    ("fault", "caught"),
    [
        ("window across episodes", {INSIDE}),
        ("final observation lost", {INSIDE, ENDS}),
        ("actions taken there", {ACTIONS}),
        ("only half", {WHOLE}),
        ("paid a step late", {RIGHT_STEP}),
    ],
)
def test_faults_of_wiring_are_caught(fault, caught):
    assert failed(diagnose(naive(fault))) == caught


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


def test_the_wrong_autoreset_mode_is_caught():
    def setup(make_env, bonus):
        """Takes a NEXT_STEP environment for one that never resets by itself."""
        vector = SyncVectorEnv([make_env] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
        return wrap_vector(vector, bonus, autoreset_mode=AutoresetMode.DISABLED)

    assert failed(diagnose(setup)) == {INSIDE}


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
            paid = self.bonus.reward(window).numpy()
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
            paid = float(bonus.reward(Window(padded, valid))[0])
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
    assert next(c.status for c in right if c.name == ACTIONS) == "skip"


def own(bonus, beta=0.1, wrapper=lambda env: env):
    chosen = bonus

    def setup(make_env=lambda: gymnasium.make("CartPole-v1"), bonus=None):
        env = SyncVectorEnv([lambda: wrapper(make_env())] * 2)
        return wrap_vector(env, bonus or chosen(), beta=beta, learn_every=32)

    return setup


def statuses(checks):
    return {check.name: check.status for check in checks}


def test_a_bonus_that_pays_nothing_or_does_not_learn_is_caught():
    assert {SHARE, NOVELTY} <= failed(diagnose(own(NoBonus)))

    class Stubborn(RND):
        def learn(self, window, train_fraction=1.0):
            return self.reward(window), {}

    assert failed(diagnose(own(Stubborn))) == {NOVELTY}


def test_the_bonus_is_as_it_was_after_its_examination():
    bonus = RND(4)
    diagnose(own(lambda: bonus))
    assert bonus.steps == 7  # 240 transitions in steps of 32, and none of the doctor's


def test_rewards_of_very_different_size_are_warned_about():
    assert statuses(diagnose(own(RND, beta=1e-5)))[SHARE] == "warn"
    assert statuses(diagnose(own(RND, beta=1e6)))[SHARE] == "warn"
    assert statuses(diagnose(own(MIMEx, beta=BonusScale(0.5))))[SHARE] == "pass"


def test_nan_is_caught_with_its_place():
    class Broken(gymnasium.Wrapper):
        def step(self, action):
            observation, *rest = self.env.step(action)
            if isinstance(self.unwrapped.observation_space, gymnasium.spaces.Box) and (
                len(observation) == 4
            ):
                observation = observation * np.nan
            return observation, *rest

    found = diagnose(own(MIMEx, wrapper=Broken))
    [finite] = [check for check in found if check.name == FINITE]
    assert finite.status == "fail"
    assert "nan at window 0" in finite.finding


def test_a_set_up_that_cannot_run_with_the_probe_says_why():
    def setup(make_env, bonus):
        raise RuntimeError("my encoder wants images")

    [check] = diagnose(setup)
    assert (check.name, check.status) == (RUNS, "fail")
    assert "my encoder wants images" in check.finding


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
