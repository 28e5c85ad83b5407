"""Set-ups against checks: all documented ways pass, and each of these broken ones is caught."""

import runpy
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from mimex import RND, BonusScale, MIMEx, NoBonus, Window, WindowTracker
from mimex.doctor import all_well, diagnose
from mimex.doctor.builtin import SETUPS, why_not
from mimex.doctor.calls import LEARNS, ONCE, ORDER, SAME
from mimex.doctor.diagnose import OWN_RUNS, RUNS
from mimex.doctor.novelty import NOVELTY
from mimex.doctor.update import FINITE, REACHES, RIGHT_STEP, SHARE, WEIGHT
from mimex.doctor.windows import ACTIONS, ENDS, INSIDE, WHOLE
from mimex.interop.vector import wrap_vector

STEPS = 100
SAME_STEP = AutoresetMode.SAME_STEP


def tampered(window, fault):
    features, valid, actions = window.features, window.valid, window.actions
    if fault == "newest first":
        features, valid, actions = (x.flip(1) for x in (features, valid, actions))
    if fault == "half of each window":
        valid = valid.clone()
        valid[:, : valid.shape[1] // 2] = False
    if fault == "actions taken there":
        actions = actions.roll(-1, 1)
    if fault == "windows of the neighbour":
        features, valid, actions = (x.flip(0) for x in (features, valid, actions))
    return Window(features, valid, actions)


def by_hand(fault=None):
    """A loop of one's own that is right, but for one fault."""

    def setup(make_env, bonus):
        envs = SyncVectorEnv([make_env] * 2, autoreset_mode=SAME_STEP)
        width = envs.single_observation_space.shape[0]
        tracker, scale = WindowTracker(2, bonus.length, width, 3), BonusScale()
        envs.action_space.seed(0)
        now, _ = envs.reset(seed=0)
        tracker.push(now, np.ones(2, bool), np.zeros((2, 3)))
        observations, rewards, late = [], [], torch.zeros(2)
        for _ in range(STEPS):
            action = envs.action_space.sample()
            new, reward, terminated, truncated, info = envs.step(action)
            over = terminated | truncated
            arrived = new.copy()
            for n in np.flatnonzero(over):
                if fault != "final observation lost":
                    arrived[n] = info["final_obs"][n]
            led = np.eye(3)[action]
            window = tampered(tracker.peek(arrived, led), fault)
            starts = np.zeros(2, bool) if fault == "windows across episodes" else over
            tracker.push(new, starts, led)
            other = Window(window.features / 7 - 0.3, window.valid, window.actions)
            if fault == "never learns":
                raw = bonus.reward(window)
            elif fault == "learns before it scores":
                bonus.learn(window)
                raw = bonus.reward(window)
            elif fault == "learns from normalised, scores raw":
                raw = bonus.reward(window)
                bonus.learn(other)
            elif fault == "asked twice":
                raw = (bonus.reward(window) + bonus.reward(window)) / 2
                bonus.learn(window)
            else:
                raw, _ = bonus.learn(window)
            if fault == "paid to the other environment":
                raw = raw.flip(0)
            if fault == "paid a step late":
                raw, late = late, raw
            if fault == "one bonus for all":
                raw = raw.mean().expand(2)
            paid = scale.combine(reward, raw)
            total = {
                "beta twice": paid.extrinsic + scale.beta * paid.intrinsic,
                "added twice": paid.total + paid.intrinsic,
                "subtracted": paid.extrinsic - paid.intrinsic,
                "left out": paid.extrinsic,
            }.get(fault, paid.total)
            observations.append(now)
            rewards.append(total.numpy())
            now = new
        paid = np.stack(rewards)
        if fault == "returns shifted by a step":
            paid = np.roll(paid, -1, axis=0)
        return {
            "targets": np.cumsum(paid[::-1], axis=0)[::-1],
            "rewards": paid.reshape(-1),
            "observations": np.concatenate(observations),
            "scale": scale,
        }

    return setup


def own(bonus, wrapper=lambda env: env, **options):
    chosen = bonus

    def setup(make_env=lambda: gymnasium.make("CartPole-v1"), bonus=None):
        env = SyncVectorEnv([lambda: wrapper(make_env())] * 2)
        return wrap_vector(env, bonus or chosen(), **options)

    return setup


def wrapped_twice(make_env, bonus):
    envs = SyncVectorEnv([make_env] * 2)
    return wrap_vector(wrap_vector(envs, bonus), bonus)


def wrong_mode(make_env, bonus):
    vector = SyncVectorEnv([make_env] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    return wrap_vector(vector, bonus, autoreset_mode=AutoresetMode.DISABLED)


def never_learning(make_env, bonus):
    return wrap_vector(SyncVectorEnv([make_env] * 2), bonus, learn_every=None)


def no_weight(make_env, bonus):
    return wrap_vector(SyncVectorEnv([make_env] * 2), bonus, beta=0.0)


def crashes(make_env, bonus):
    raise RuntimeError("my encoder wants images")


class Stubborn(RND):
    def learn(self, window, train_fraction=1.0):
        return self.reward(window), {}


class Blind(gymnasium.ObservationWrapper):
    """Observations that are NaN, of the set-up's own environment alone."""

    def observation(self, observation):
        return observation * np.nan if len(observation) == 4 else observation


BROKEN = {
    "never learns": (by_hand("never learns"), {LEARNS}),
    "learn_every=None": (never_learning, {LEARNS}),
    "learns before it scores": (by_hand("learns before it scores"), {ORDER}),
    "learns from normalised, scores raw": (by_hand("learns from normalised, scores raw"), {SAME}),
    "asked twice": (by_hand("asked twice"), {ONCE}),
    "wrapped twice": (wrapped_twice, {ONCE}),
    "beta twice": (by_hand("beta twice"), {WEIGHT}),
    "added twice": (by_hand("added twice"), {WEIGHT}),
    "subtracted": (by_hand("subtracted"), {WEIGHT}),
    "left out": (by_hand("left out"), {REACHES}),
    "beta zero": (no_weight, {REACHES}),
    "paid to the other environment": (by_hand("paid to the other environment"), {RIGHT_STEP}),
    "windows of the neighbour": (by_hand("windows of the neighbour"), {RIGHT_STEP}),
    "paid a step late": (by_hand("paid a step late"), {RIGHT_STEP}),
    "returns shifted by a step": (by_hand("returns shifted by a step"), {RIGHT_STEP}),
    "windows across episodes": (by_hand("windows across episodes"), {INSIDE}),
    "final observation lost": (by_hand("final observation lost"), {INSIDE}),
    "wrong autoreset mode": (wrong_mode, {INSIDE}),
    "newest first": (by_hand("newest first"), {WHOLE}),
    "half of each window": (by_hand("half of each window"), {WHOLE}),
    "actions taken there": (by_hand("actions taken there"), {ACTIONS}),
    "a bonus that pays nothing": (own(NoBonus), {SHARE}),
    "a bonus that cannot learn": (own(Stubborn), {NOVELTY}),
    "observations that are NaN": (own(MIMEx, Blind), {FINITE}),
    "a set-up that crashes": (crashes, {RUNS}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_set_ups_are_caught_with_a_remedy(name):
    setup, expected = BROKEN[name]
    found = [check for check in diagnose(setup) if check.status == "fail"]
    assert expected <= {check.name for check in found}
    assert all(check.remedy for check in found)


def test_the_loop_without_a_fault_is_well():
    checks = diagnose(by_hand())
    assert {c.name: c.finding for c in checks if c.status == "fail"} == {}
    # Its own environment and bonus are not there to be examined.
    assert {c.name for c in checks if c.status == "skip"} == {FINITE, SHARE, NOVELTY}


def cleanrl(make_env=lambda: gymnasium.make("Acrobot-v1"), bonus=None):
    path = Path(__file__).parents[2] / "examples/cleanrl_ppo.py"
    return runpy.run_path(str(path))["main"](updates=1, make_env=make_env, bonus=bonus)


DOCUMENTED = {**SETUPS, "examples/cleanrl_ppo.py": (cleanrl, "mimex")}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_set_ups_are_well(name):
    setup, package = DOCUMENTED[name]
    if reason := why_not(package):
        pytest.skip(reason)
    checks = diagnose(setup)
    assert {c.name: (c.status, c.finding) for c in checks if c.status != "pass"} == {}
    assert all_well(checks)
    assert len(checks) == 14


class Kind(gymnasium.Env):
    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), 1.0, False, self.t == 8, {}


VECTOR, CODE = spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(12)
PICTURE = spaces.Box(0, 255, (12, 12, 3), np.uint8)


@pytest.mark.parametrize(
    "space", [spaces.Dict({"a": VECTOR, "b": VECTOR}), CODE], ids=["dict", "discrete"]
)
@pytest.mark.parametrize("way", ["sb3 BonusRolloutBuffer, PPO", "mimex.wrap"])
def test_dict_and_discrete_set_ups_are_examined(space, way):
    way, package = SETUPS[way]
    pytest.importorskip(package)

    def setup(make_env=lambda: Kind(space), bonus=None):
        return way(make_env, bonus or RND())

    checks = diagnose(setup)
    assert not {c.name: c.finding for c in checks if c.status == "fail"} or {
        c.name for c in checks if c.status == "fail"
    } == {NOVELTY}  # Kind's observations are noise
    assert next(c.status for c in checks if c.name == INSIDE) == "pass"
    assert next(c.status for c in checks if c.name == RIGHT_STEP) == "pass"


def test_picture_set_ups_run_and_say_what_could_not_be_told():
    def setup(make_env=lambda: Kind(PICTURE), bonus=None):
        envs = SyncVectorEnv([make_env] * 2)
        return wrap_vector(envs, bonus or RND(), encoder=lambda x: x.flatten(1)[:, :5].float() / 9)

    found = {check.name: check.status for check in diagnose(setup)}
    assert found[REACHES] == "pass"
    assert found[INSIDE] == "skip"
    assert RUNS not in found


def test_an_error_of_the_users_code_is_told_with_its_line():
    def setup(make_env=lambda: gymnasium.make("CartPole-v1"), bonus=None):
        env = make_env()
        if env.observation_space.shape == (4,):
            env.my_own_mistake()  # in the user's file
        return wrap_vector(SyncVectorEnv([lambda: env]), bonus or RND())

    [check] = [c for c in diagnose(setup) if c.name == OWN_RUNS]
    assert check.status == "fail"
    assert "my_own_mistake" in check.finding
    assert "test_table.py, line" in check.finding


def test_paying_for_steps_that_only_reset_is_caught_in_stable_baselines_style():
    def setup(make_env, bonus):
        vector = SyncVectorEnv([make_env] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
        return wrap_vector(vector, bonus, autoreset_mode=AutoresetMode.SAME_STEP)

    checks = diagnose(setup)
    assert {c.name for c in checks if c.status == "fail"} & {RUNS, ENDS, INSIDE}


def test_the_effective_beta_is_printed_as_a_slope():
    def setup(make_env, bonus):
        envs = SyncVectorEnv([make_env] * 2)
        return wrap_vector(envs, bonus, beta=BonusScale(0.25, normalize=False))

    [check] = [c for c in diagnose(setup) if c.name == WEIGHT]
    assert check.status == "pass"
    assert "adds 0.25 to the reward" in check.finding
