"""Correct set-ups pass every check, and each fault is caught by its row, with a remedy."""

import runpy
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import mimex
from mimex import (
    E3B,
    ICM,
    RND,
    BonusScale,
    Disagreement,
    MIMEx,
    NoBonus,
    RolloutWindows,
    Window,
    WindowTracker,
    check_bonus,
)
from mimex.agents import ppo as own
from mimex.agents.actions import ActionAdapter
from mimex.agents.encoders import ObsAdapter, VectorEncoder
from mimex.agents.on_policy import LoopSettings
from mimex.check import _similar
from mimex.interop.sb3 import BonusReplayBuffer, BonusRolloutBuffer, BonusVecEnv, ReplayBonus
from mimex.track.clock import Clock
from mimex.train.runner import Training

RUNS = "the set-up runs"
ASKED = "the bonus is asked for scores"
WINDOWS = "windows hold the newest steps of one episode"
ENDS = "final observations are scored, resets are not"
LEARNS = "the bonus is trained"
TASK = "the task's reward is in the reward once"
BONUS = "the transition's bonus is in the reward once"
ADVANTAGES = "advantages are computed from these rewards"
EPISODES = "advantages stop at the end of an episode"
FALLS = "the bonus falls on windows that it is trained on"

STEPS, GAMMA, LAMBDA = 160, 0.99, 0.95
SAME_STEP = AutoresetMode.SAME_STEP
SMALL = {"n_steps": 64, "batch_size": 64, "n_epochs": 1, "device": "cpu"}


def pendulum():
    return gymnasium.make("Pendulum-v1")


def cart():
    return gymnasium.make("CartPole-v1")


def statuses(checks):
    return {check.name: check.status for check in checks}


def failed(target, **kwargs):
    checks = check_bonus(target, verbose=False, **kwargs)
    found = [check for check in checks if check.status == "fail"]
    assert all(check.finding and check.remedy for check in found)
    return {check.name for check in found}


def require_correct(target, skipped=frozenset(), **kwargs):
    checks = check_bonus(target, verbose=False, **kwargs)
    assert {c.name: c.finding for c in checks if c.status == "fail"} == {}
    assert {c.name for c in checks if c.status == "skip"} == skipped


def by_hand(fault=None, rollouts=2):
    """A loop of a user's own: windows, bonus, scale and GAE, with one fault or none."""

    def train(make_env, bonus):
        envs = SyncVectorEnv([make_env] * 2, autoreset_mode=SAME_STEP)
        tracker, scale = WindowTracker(2, bonus.length, 4), BonusScale()
        envs.action_space.seed(0)
        now, _ = envs.reset(seed=0)
        tracker.push(now, np.ones(2, bool))
        late = torch.zeros(2)
        for _ in range(rollouts):
            if fault == "tracker made for each rollout":
                tracker = WindowTracker(2, bonus.length, 4)
                tracker.push(now, np.zeros(2, bool))
            observations, rewards, extrinsics, dones = [], [], [], []
            for _ in range(STEPS):
                new, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
                over = terminated | truncated
                arrived = new.copy()
                if fault != "final observation lost":
                    for n in np.flatnonzero(over):
                        arrived[n] = info["final_obs"][n]
                window = tampered(tracker.peek(arrived), fault)
                tracker.push(new, over & (fault != "windows across episodes"))
                raw = bonus.reward(window) if fault == "never learns" else bonus.learn(window)[0]
                if fault == "bonus of the other environment":
                    raw = raw.flip(0)
                if fault == "bonus a step late":
                    raw, late = late, raw
                found = scale.combine(reward, raw)
                extrinsic, intrinsic = found.extrinsic, found.intrinsic
                total = {
                    "beta twice": extrinsic + scale.beta * intrinsic,
                    "bonus twice": found.total + intrinsic,
                    "bonus subtracted": extrinsic - intrinsic,
                    "bonus left out": extrinsic,
                    "task left out": intrinsic,
                    "task twice": found.total + extrinsic,
                    "NaN": found.total * np.nan,
                }.get(fault, found.total)
                observations.append(now)
                rewards.append(total.numpy())
                extrinsics.append(extrinsic.numpy())
                dones.append(over)
                now = new
            rewards, dones = np.stack(rewards), np.stack(dones)
            values = np.stack(observations)[..., 2] * 0.5  # a critic of one weight
            learned = np.stack(extrinsics) if fault == "bonus after the advantages" else rewards
            advantages = gae(learned, values, dones, fault)
        return {
            "observations": np.stack(observations),
            "rewards": np.roll(rewards, -1, 0) if fault == "rewards a step off" else rewards,
            "advantages": torch.as_tensor(advantages),
            "values": values,
        }

    return train


def tampered(window, fault):
    features, valid = window.features, window.valid
    if fault == "newest first":
        features, valid = features.flip(1), valid.flip(1)
    if fault == "half of each window":
        valid = valid & (torch.arange(valid.shape[1]) >= valid.shape[1] // 2)
    return Window(features, valid)


def gae(rewards, values, dones, fault):
    advantages, after, value = np.zeros_like(rewards), 0.0, values[-1]
    for t in reversed(range(len(rewards))):
        continues = 1.0 - dones[t] * (fault != "advantages across episodes")
        bootstrap = 1.0 if fault == "values across episodes" else continues
        delta = rewards[t] + GAMMA * bootstrap * value - values[t]
        advantages[t] = after = delta + GAMMA * LAMBDA * continues * after
        value = values[t]
    return advantages


FAULTS = {
    "never learns": {LEARNS},
    "tracker made for each rollout": {WINDOWS},
    "windows across episodes": {WINDOWS},
    "newest first": {WINDOWS},
    "half of each window": {WINDOWS},
    "final observation lost": {WINDOWS},
    "bonus of the other environment": {BONUS},
    "bonus a step late": {BONUS},
    "rewards a step off": {BONUS, TASK, ADVANTAGES},
    "beta twice": {BONUS},
    "bonus twice": {BONUS},
    "bonus subtracted": {BONUS},
    "bonus left out": {BONUS},
    "task left out": {TASK},
    "task twice": {TASK},
    "bonus after the advantages": {ADVANTAGES},
    "advantages across episodes": {EPISODES},
    "values across episodes": {EPISODES},
    "NaN": {RUNS},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_loop_is_caught_by_its_row_with_a_remedy(fault):
    assert FAULTS[fault] <= failed(by_hand(fault))


def test_a_loop_without_a_fault_passes_every_check():
    require_correct(by_hand())
    require_correct(by_hand(), bonus=RND(length=3), make_env=cart)


def test_whether_a_bonus_is_trained_is_not_judged_after_a_few_steps():
    found = statuses(check_bonus(by_hand("never learns", rollouts=1), verbose=False))
    assert found[LEARNS] == "skip"


@pytest.mark.parametrize("ends_at", ["next", "observation"])
def test_windows_of_rollouts_with_a_stride_pass(ends_at):
    def train(make_env, bonus):
        envs = SyncVectorEnv([make_env] * 2, autoreset_mode=SAME_STEP)
        windows, scale = RolloutWindows(bonus.length, 2, ends_at=ends_at, stride=2), BonusScale()
        now, _ = envs.reset(seed=0)
        for _ in range(2):
            obs, rewards, dones, finals = [], [], [], [np.zeros((0, 4), np.float32)]
            for _ in range(STEPS):
                obs.append(now)
                now, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
                rewards.append(reward)
                dones.append(terminated | truncated)
                finals += [o[None] for o in info.get("final_obs", ()) if o is not None]
            ends = {"last": torch.as_tensor(now), "finals": torch.as_tensor(np.concatenate(finals))}
            index = windows.build(
                torch.as_tensor(np.stack(obs)),
                torch.as_tensor(np.stack(dones)),
                **(ends if ends_at == "next" else {}),
            )
            raw, _ = bonus.learn(index[:])
            total = scale.combine(np.stack(rewards), raw.view(STEPS, 2)).total
        return {"observations": np.stack(obs), "rewards": total}

    require_correct(train, {ADVANTAGES, EPISODES})


def test_a_wrapper_made_for_every_rollout_never_trains_its_bonus():
    def train(make_env, bonus):
        envs = SyncVectorEnv([make_env] * 2, autoreset_mode=SAME_STEP)
        for _ in range(6):
            wrapped = mimex.wrap_vector(envs, bonus)
            now, _ = wrapped.reset(seed=0)
            obs, rewards = [], []
            for _ in range(50):
                obs.append(now)
                now, reward, _, _, _ = wrapped.step(wrapped.action_space.sample())
                rewards.append(reward)
        return {"observations": np.stack(obs), "rewards": np.stack(rewards)}

    assert failed(train) == {LEARNS}


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_wrapped_vector_environments_pass(mode):
    env = mimex.wrap_vector(SyncVectorEnv([cart] * 2, autoreset_mode=mode), MIMEx(normalize=True))
    require_correct(env, {ADVANTAGES, EPISODES})


@pytest.mark.parametrize("kind", [RND, ICM, Disagreement, E3B])
def test_a_wrapped_environment_passes_with_any_bonus(kind):
    require_correct(mimex.wrap(pendulum(), kind()), {ADVANTAGES, EPISODES})


class Stubborn(RND):
    def learn(self, window, train_fraction=1.0):
        return self.reward(window), {}


class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward


class ScoresResets(VectorWrapper):
    """A wrapper of a user's own that scores the steps that only reset."""

    def __init__(self, env, bonus):
        super().__init__(env)
        self.bonus, self.tracker = bonus, WindowTracker(env.num_envs, bonus.length, 4)

    def reset(self, **kwargs):
        observations, info = self.env.reset(**kwargs)
        self.over = np.zeros(self.num_envs, bool)
        self.tracker.push(observations, ~self.over)
        return observations, info

    def step(self, actions):
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        window = self.tracker.push(observations, self.over)
        self.over = terminated | truncated
        rewards = rewards + self.bonus.learn(window)[0].numpy()
        return observations, rewards, terminated, truncated, info


def twins():
    return SyncVectorEnv([cart] * 2)


WRAPPED = {
    "not wrapped": (twins, {ASKED, BONUS}),
    "wrapped twice": (lambda: mimex.wrap_vector(mimex.wrap_vector(twins(), RND()), RND()), {BONUS}),
    "beta is 0": (lambda: mimex.wrap_vector(twins(), RND(), beta=0.0), {BONUS}),
    "never trained": (lambda: mimex.wrap_vector(twins(), RND(), learn_every=None), {LEARNS}),
    "resets scored": (lambda: ScoresResets(twins(), RND()), {ENDS}),
    "wrong autoreset mode": (
        lambda: mimex.wrap_vector(twins(), RND(), autoreset_mode=AutoresetMode.DISABLED),
        {ENDS},
    ),
    "a bonus that does not learn": (lambda: mimex.wrap(cart(), Stubborn()), {FALLS}),
    "a bonus of zero": (lambda: mimex.wrap(cart(), NoBonus()), {FALLS}),
    "reward doubled outside": (lambda: Doubled(mimex.wrap(cart(), RND())), {TASK}),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_fault_of_a_wrapped_environment_is_caught(name):
    make, expected = WRAPPED[name]
    assert expected <= failed(make())


def ppo(bonus, at_once=True, buffer=True, normalize=False, make=pendulum, **kwargs):
    env = DummyVecEnv([make] * 2)
    env = BonusVecEnv(VecNormalize(env) if normalize else env, bonus)
    if at_once:
        bonus = env.rollout_bonus()
        if buffer:
            kwargs |= {"rollout_buffer_class": BonusRolloutBuffer}
            kwargs |= {"rollout_buffer_kwargs": {"bonus": bonus}}
    return PPO("MlpPolicy", env, **SMALL | {"n_steps": 160} | kwargs)


@pytest.mark.parametrize("options", [{}, {"at_once": False}, {"normalize": True}], ids=str)
def test_ppo_of_stable_baselines_passes(options):
    require_correct(ppo(MIMEx(normalize=True), **options))


def test_ppo_inside_of_a_normalizer_and_with_a_dict_passes():
    inside = BonusVecEnv(make_vec_env("Pendulum-v1", 2), ICM(), learn_every=100)
    require_correct(PPO("MlpPolicy", VecNormalize(inside), **SMALL | {"n_steps": 160}))

    class Pair(gymnasium.ObservationWrapper):
        def __init__(self):
            super().__init__(cart())
            self.observation_space = spaces.Dict(dict.fromkeys("ab", self.env.observation_space))

        def observation(self, observation):
            return {"a": observation, "b": 2 * observation}

    env = BonusVecEnv(DummyVecEnv([Pair] * 2), RND())
    kwargs = {"rollout_buffer_class": BonusRolloutBuffer}
    kwargs |= {"rollout_buffer_kwargs": {"bonus": env.rollout_bonus()}}
    require_correct(PPO("MultiInputPolicy", env, **SMALL, **kwargs))


@pytest.mark.parametrize("way", ["sac", "dqn"])
def test_off_policy_models_of_stable_baselines_pass(way):
    kind, make = {"sac": (SAC, pendulum), "dqn": (DQN, cart)}[way]
    model = kind(
        "MlpPolicy",
        make(),
        batch_size=32,
        buffer_size=1000,
        device="cpu",
        replay_buffer_class=BonusReplayBuffer,
        replay_buffer_kwargs={"bonus": ReplayBonus(MIMEx(normalize=True))},
    )
    require_correct(model, {ADVANTAGES, EPISODES})


def test_a_model_with_bonus_in_one_line_passes():
    sb3 = pytest.importorskip("mimex.interop.sb3")
    if not hasattr(sb3, "with_bonus"):
        pytest.skip("with_bonus is not in this version")
    require_correct(PPO("MlpPolicy", **sb3.with_bonus(DummyVecEnv([cart] * 2), RND()), **SMALL))
    off = sb3.with_bonus(cart(), RND(), off_policy=True)
    model = DQN("MlpPolicy", **off, buffer_size=1000, device="cpu")
    require_correct(model, {ADVANTAGES, EPISODES})


def test_a_model_whose_buffer_does_not_use_the_bonus_is_caught():
    plain = PPO("MlpPolicy", DummyVecEnv([cart] * 2), **SMALL)
    assert {ASKED, BONUS} <= failed(plain)
    if not failed(ppo(RND(), buffer=False)) >= {ASKED, BONUS}:  # at_once() without its buffer
        require_correct(ppo(RND(), buffer=False))  # which a later version takes for step by step
    stored = BonusVecEnv(DummyVecEnv([pendulum]), RND())
    assert ASKED in failed(SAC("MlpPolicy", stored, batch_size=8, buffer_size=1000, device="cpu"))


def test_a_rollout_callback_is_too_late():
    class TooLate(BaseCallback):
        def __init__(self, bonus):
            super().__init__()
            self.bonus = bonus

        def _on_step(self):
            return True

        def _on_rollout_end(self):
            buffer = self.model.rollout_buffer
            window = Window(np.repeat(buffer.observations.reshape(-1, 1, 4), 5, axis=1))
            buffer.rewards += self.bonus.learn(window)[0].numpy().reshape(buffer.rewards.shape)

    def train(make_env, bonus):
        return PPO("MlpPolicy", DummyVecEnv([make_env] * 2), **SMALL).learn(256, TooLate(bonus))

    assert ADVANTAGES in failed(train)


def cleanrl(make_env, bonus):
    path = Path(__file__).parents[1] / "examples/cleanrl_ppo.py"
    return runpy.run_path(str(path))["main"](updates=1, make_env=make_env, bonus=bonus)


def test_the_cleanrl_example_passes():
    require_correct(cleanrl, make_env=lambda: gymnasium.make("Acrobot-v1"))


class Kept(BonusScale):
    def combine(self, *args, **kwargs):
        self.last = super().combine(*args, **kwargs)
        return self.last


def own_trainer(make_env, bonus):
    env = SyncVectorEnv([make_env] * 4, autoreset_mode=SAME_STEP)
    algorithm = own.PPO(
        VectorEncoder(ObsAdapter(env.single_observation_space, "cpu")),
        ActionAdapter(env.single_action_space),
        own.PPOSettings(epochs=1, minibatches=2, normalize_observations=False),
        seed=1,
    )
    scale, loop = Kept(), LoopSettings(rollout_steps=80, bonus_minibatch=64)
    agent = own.PPOAgent(
        algorithm, bonus, scale, loop, num_envs=4, horizon=1000, seed=3, clock=Clock()
    )
    batches, update = [], algorithm.update
    algorithm.update = lambda batch, *args, **kwargs: (
        batches.append(batch) or update(batch, *args, **kwargs)
    )
    training = Training(env, agent, {}, seed=2, clock=agent.clock)
    training._begin(training.seed)
    while agent.updates < 2:
        training.advance(10**9)
    [observations] = batches[-1].observations.values()
    return {
        "observations": observations,
        "rewards": scale.last.total,
        "advantages": batches[-1].advantages,
        "values": batches[-1].values,
    }


def test_our_own_ppo_passes():
    require_correct(own_trainer)


def test_nothing_of_the_set_up_stays_replaced():
    bonus = RND(4)
    env = mimex.wrap(cart(), bonus)
    step, combine = env.env.step, BonusScale.combine
    check_bonus(env, verbose=False)
    assert bonus.steps == 0
    assert env.env.step == step
    assert BonusScale.combine is combine
    assert {"reward", "learn"}.isdisjoint(vars(bonus))
    assert mimex.bonus.scale.WARMUP == 64


def test_a_set_up_that_cannot_run_is_a_row_of_the_table():
    def crashes(make_env, bonus):
        raise RuntimeError("my encoder wants images")

    [check] = [c for c in check_bonus(crashes, verbose=False) if c.status == "fail"]
    assert check.name == RUNS
    assert "my encoder wants images" in check.finding
    assert "test_check.py, line" in check.finding
    elsewhere = mimex.wrap_vector(AsyncVectorEnv([cart] * 2), RND())
    assert RUNS in failed(elsewhere)
    elsewhere.close()
    for odd in (None, 3, lambda make_env, bonus: None, lambda make_env, bonus: {"targets": 1}):
        assert RUNS in failed(odd)


def test_encoded_and_normalized_observations_are_skipped_rows():
    def normalized(make_env, bonus):
        envs = gymnasium.wrappers.vector.NormalizeObservation(SyncVectorEnv([make_env] * 2))
        return mimex.wrap_vector(envs, bonus)

    found = statuses(check_bonus(normalized, verbose=False))
    assert found[WINDOWS] == found[BONUS] == "skip"
    assert found[TASK] == found[LEARNS] == "pass"

    def encoder(observations):
        return observations.float() @ torch.tensor([[1.0], [2.0], [3.0], [4.0]])

    require_correct(mimex.wrap(cart(), RND(), encoder=encoder), {ADVANTAGES, EPISODES})


class Cells(gymnasium.Env):
    """A walk over 5 x 5 cells, which the observation shows in one of several spaces."""

    SPACES: ClassVar = {
        "floats": spaces.Box(0.0, 1.0, (2,), np.float32),
        "dict": spaces.Dict({"at": spaces.Box(0.0, np.inf, (2,), np.float64)}),
        "image": spaces.Box(0, 255, (8, 8, 1), np.uint8),
        "discrete": spaces.Discrete(25),
    }
    action_space = spaces.Discrete(4)

    def __init__(self, kind):
        self.kind, self.observation_space = kind, self.SPACES[kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = np.zeros(2, int)
        return self.observe(), {}

    def step(self, action):
        self.cell = np.clip(self.cell + [(0, 1), (1, 0), (0, -1), (-1, 0)][action], 0, 4)
        return self.observe(), 0.0, False, False, {}

    def observe(self):
        image = np.zeros((8, 8, 1), np.uint8)
        image[tuple(self.cell)] = 255
        return {
            "floats": (self.cell / 4).astype(np.float32),
            "dict": {"at": self.cell / 4},
            "image": image,
            "discrete": int(self.cell @ [5, 1]),
        }[self.kind]


def pixels_of(images):
    return images.float().flatten(1) / 255


@pytest.mark.parametrize("kind", ["floats", "dict", "image"])
def test_observations_that_repeat_are_checked_all_the_same(kind):
    options = {"encoder": pixels_of} if kind == "image" else {}
    require_correct(mimex.wrap(Cells(kind), RND(), **options), {ADVANTAGES, EPISODES})
    assert TASK in failed(Doubled(mimex.wrap(Cells(kind), RND(), **options)))


def test_a_view_that_repeats_is_checked_all_the_same():
    limited = gymnasium.wrappers.TimeLimit(Cells("floats"), 100)
    clocked = gymnasium.wrappers.TimeAwareObservation(limited)
    require_correct(mimex.wrap(clocked, RND(), view=[0, 1]), {ADVANTAGES, EPISODES})


def test_discrete_observations_that_repeat_are_skipped_with_a_remedy():
    checks = check_bonus(mimex.wrap(Cells("discrete"), RND()), verbose=False)
    skipped = {check.name: check for check in checks if check.status == "skip"}
    assert {WINDOWS, ENDS, BONUS} <= skipped.keys()
    assert not [check for check in checks if check.status == "fail"]
    for name in (WINDOWS, ENDS, BONUS):
        assert "most observations repeat" in skipped[name].finding
        assert "CartPole-v1" in skipped[name].remedy
    assert failed(mimex.wrap(Cells("discrete"), RND(), beta=0.0)) == {BONUS}


def test_similar_observations_stay_in_their_space():
    rng = np.random.default_rng(0)
    for space in (*Cells.SPACES.values(), spaces.Box(-np.inf, np.inf, (3,), np.float32)):
        space.seed(0)
        for _ in range(20):
            assert space.contains(_similar(space, space.sample(), rng))


def test_the_table_is_printed(capsys):
    check_bonus(by_hand("bonus twice"))
    printed = capsys.readouterr().out
    [row] = [line for line in printed.splitlines() if line.startswith("fail")]
    assert row.split("  ", 2)[1] == BONUS
    assert "the reward has 2.0" in row
    assert "-> add the intrinsic reward once" in printed
    assert "9 passed, 1 failed, 0 skipped" in printed
