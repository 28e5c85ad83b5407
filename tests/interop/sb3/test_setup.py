"""``with_bonus`` in one line, and set-ups by hand with missing parts."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from mimex import ICM, RND, MIMEx
from mimex.interop.sb3 import (
    BonusReplayBuffer,
    BonusRolloutBuffer,
    BonusVecEnv,
    ReplayBonus,
    load,
    save,
    with_bonus,
)

FAST = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "device": "cpu"}


def cartpole(num_envs=2):
    return make_vec_env("CartPole-v1", num_envs, seed=0)


def test_with_bonus_adds_the_bonus_to_ppos_rollouts():
    bonus = RND()
    model = PPO("MlpPolicy", **with_bonus(cartpole(), bonus, beta=1.0), **FAST)
    model.learn(64)
    assert bonus.steps == 2
    assert model.rollout_buffer.rewards.mean() > 1.0  # CartPole's reward is 1
    assert isinstance(model.rollout_buffer, BonusRolloutBuffer)


@pytest.mark.parametrize(
    "env", ["CartPole-v1", lambda: gymnasium.make("CartPole-v1"), lambda: VecNormalize(cartpole())]
)
def test_with_bonus_accepts_ids_environments_and_vec_envs(env):
    bonus = RND()
    made = env if isinstance(env, str) else env()
    model = A2C("MlpPolicy", **with_bonus(made, bonus), n_steps=8, device="cpu")
    model.learn(64)
    assert bonus.steps > 0
    assert model.ep_info_buffer  # episodes are monitored


def test_with_bonus_models_are_saved_and_loaded(tmp_path):
    def arguments():
        return with_bonus("Pendulum-v1", MIMEx(length=3), off_policy=True, beta=0.1)

    model = SAC("MlpPolicy", **arguments(), learning_starts=20, buffer_size=99, device="cpu")
    model.learn(40)
    save(model, tmp_path / "sac")
    loaded = load(SAC, tmp_path / "sac", **arguments(), device="cpu")
    assert loaded.replay_buffer.bonus.bonus.steps == 20
    loaded.learn(10, reset_num_timesteps=False)
    model = PPO("MlpPolicy", **with_bonus(cartpole(), RND()), **FAST)
    model.learn(32)
    save(model, tmp_path / "ppo")
    bonus = RND()
    loaded = load(PPO, tmp_path / "ppo", **with_bonus(cartpole(), bonus), device="cpu")
    loaded.learn(32)
    assert bonus.steps == 2


class Goal(gymnasium.Env):
    """A Dict of a position and an image; actions have two dimensions."""

    observation_space = spaces.Dict(
        {"position": spaces.Box(-1, 1, (3,)), "image": spaces.Box(0, 255, (36, 36, 3), np.uint8)}
    )
    action_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), 0.0, False, self.t == 5, {}


def test_view_selects_features_on_and_off_policy():
    for view, env, policy, width in [
        ("position", Goal, "MultiInputPolicy", 3),
        ([0, 2], lambda: gymnasium.make("Pendulum-v1"), "MlpPolicy", 2),
    ]:
        bonus = ICM()
        arguments = with_bonus(DummyVecEnv([env] * 2), bonus, view=view)
        PPO(policy, **arguments, **FAST).learn(32)
        assert (bonus.feature_dim, bonus.steps) == (width, 1)
        bonus = ICM()
        arguments = with_bonus(DummyVecEnv([env]), bonus, off_policy=True, view=view)
        SAC(
            policy, **arguments, learning_starts=8, buffer_size=20, batch_size=4, device="cpu"
        ).learn(10)
        assert (bonus.feature_dim, bonus.steps) == (width, 2)
    with pytest.raises(ValueError, match=r"view='goal'.*'image', 'position'"):
        with_bonus(DummyVecEnv([Goal]), RND(), view="goal")
    with pytest.raises(ValueError, match=r"view='goal'.*'image', 'position'"):
        SAC(
            "MultiInputPolicy", **with_bonus(Goal(), RND(), off_policy=True, view="goal"),
            buffer_size=20, device="cpu",
        )  # fmt: skip


def test_multi_discrete_actions_reach_the_bonus():
    class Switches(Goal):
        observation_space = spaces.MultiDiscrete([3, 4])
        action_space = spaces.MultiDiscrete([2, 3])

    bonus = ICM()
    PPO("MlpPolicy", **with_bonus(DummyVecEnv([Switches] * 2), bonus), **FAST).learn(32)
    assert (bonus.feature_dim, bonus.action_dim) == (7, 5)


def test_rollout_bonus_without_the_buffer_rewards_single_steps():
    env = BonusVecEnv(cartpole(), RND())
    env.rollout_bonus()
    PPO("MlpPolicy", env, **FAST).learn(32)
    assert env.stream.reward_sums["intrinsic"] > 0
    assert env.stream.transitions == 32


def test_a_buffer_of_another_environments_bonus_raises_at_the_first_rollout():
    env = BonusVecEnv(cartpole(), RND())
    buffers = {
        "rollout_buffer_class": BonusRolloutBuffer,
        "rollout_buffer_kwargs": {"bonus": env.rollout_bonus()},
    }
    model = PPO("MlpPolicy", env.venv, **buffers, **FAST)
    with pytest.raises(RuntimeError, match=r"saw 0 of the 16 steps.*with_bonus\(env, bonus\)"):
        model.learn(64)
    model = PPO("MlpPolicy", env, **buffers, **FAST)
    env.training = False  # after an evaluation
    with pytest.raises(RuntimeError, match="training = True"):
        model.learn(64)


def test_a_bonus_of_the_wrong_type_raises_with_the_remedy():
    env = BonusVecEnv(cartpole(), RND())
    for wrong in (RND(), env, ReplayBonus(RND())):
        with pytest.raises(TypeError, match=r"bonus=<.*with_bonus\(env, bonus\)"):
            PPO(
                "MlpPolicy", env, **FAST,
                rollout_buffer_class=BonusRolloutBuffer, rollout_buffer_kwargs={"bonus": wrong},
            )  # fmt: skip
    for wrong in (RND(), env.rollout_bonus()):
        with pytest.raises(TypeError, match="off_policy=True"):
            SAC(
                "MlpPolicy", "Pendulum-v1", device="cpu", buffer_size=9,
                replay_buffer_class=BonusReplayBuffer, replay_buffer_kwargs={"bonus": wrong},
            )  # fmt: skip
    with pytest.raises(ValueError, match="has a BonusVecEnv already"):
        with_bonus(VecNormalize(env), RND())


def test_stepping_outside_of_a_rollout_stores_nothing():
    arguments = with_bonus(cartpole(), RND())
    env, model = arguments["env"], PPO("MlpPolicy", **arguments, **FAST)
    for trained in (False, True):
        if trained:
            model.learn(32)
        env.reset()
        for _ in range(20):
            env.step(np.zeros(2, int))
        assert env.stream._rollout == []
