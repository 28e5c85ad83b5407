"""Common set-ups with Stable-Baselines3: Dict observations, evaluations, logs."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from mimex import ICM, RND, NoBonus
from mimex.bonus.scale import BETA
from mimex.interop.sb3 import (
    BonusLog,
    BonusReplayBuffer,
    BonusRolloutBuffer,
    BonusVecEnv,
    ReplayBonus,
)


class Pair(gymnasium.Env):
    observation_space = spaces.Dict(
        {"a": spaces.Box(-1, 1, (2,)), "b": spaces.Box(-1, 1, (3,)), "c": spaces.Box(-1, 1, (4,))}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), 1.0, False, self.t == 6, {}


def make_ppo(env, bonus, policy="MlpPolicy", around=lambda env: env, **options):
    wrapped = BonusVecEnv(env, bonus, **options)
    return wrapped, PPO(
        policy,
        around(wrapped),
        n_steps=16,
        batch_size=16,
        n_epochs=1,
        device="cpu",
        rollout_buffer_class=BonusRolloutBuffer,
        rollout_buffer_kwargs={"bonus": wrapped.rollout_bonus()},
    )


@pytest.mark.parametrize(("key", "width"), [("a", 2), (["a", "c"], 6), (None, 9)])
def test_dict_observations_work_with_the_same_classes(key, width):
    bonus = RND()
    make_ppo(DummyVecEnv([Pair] * 2), bonus, "MultiInputPolicy", view=key)[1].learn(32)
    assert bonus.feature_dim == width
    replayed = RND()
    model = DQN(
        "MultiInputPolicy",
        DummyVecEnv([Pair]),
        learning_starts=10,
        buffer_size=100,
        device="cpu",
        replay_buffer_class=BonusReplayBuffer,
        replay_buffer_kwargs={"bonus": ReplayBonus(replayed, view=key)},
    )
    model.learn(24)
    assert replayed.feature_dim == width


def test_an_unknown_key_raises():
    with pytest.raises(ValueError, match=r"view=\['a', 'z'\] is no part.*'a', 'b', 'c'"):
        BonusVecEnv(DummyVecEnv([Pair]), RND(), view=["a", "z"])


def test_icm_infers_its_sizes_from_the_environment():
    bonus = ICM()
    make_ppo(make_vec_env("CartPole-v1", 2), bonus)[1].learn(32)
    assert (bonus.feature_dim, bonus.action_dim, bonus.discrete) == (4, 2, True)
    bonus = ICM()
    BonusVecEnv(make_vec_env("Pendulum-v1", 2), bonus)
    assert (bonus.action_dim, bonus.discrete) == (1, False)


def test_inside_of_vec_normalize_the_bonus_is_added_to_normalized_rewards():
    env, model = make_ppo(make_vec_env("Pendulum-v1", 2, seed=0), RND(), around=VecNormalize)
    seen = []

    class Look(BonusLog):
        def _on_rollout_end(self):
            super()._on_rollout_end()
            rewards = np.abs(self.model.rollout_buffer.rewards).mean()
            seen.append((env.stream.reward_sums["intrinsic"] / 32, rewards))

    model.learn(320, callback=Look())
    earned, normalized = seen[-1][0] - seen[-2][0], seen[-1][1]
    assert 0 < earned < normalized  # in units of return, whatever the size of the task's rewards


@pytest.mark.parametrize("way", ["step", "rollout", "replay"])
def test_the_bonus_is_logged_per_step_per_rollout_and_off_policy(way):
    if way == "replay":
        model = SAC(
            "MlpPolicy",
            "Pendulum-v1",
            learning_starts=8,
            buffer_size=100,
            device="cpu",
            replay_buffer_class=BonusReplayBuffer,
            replay_buffer_kwargs={"bonus": ReplayBonus(RND())},
        )
    elif way == "step":
        env = BonusVecEnv(make_vec_env("Pendulum-v1", 2), RND())
        model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, device="cpu")
    else:
        model = make_ppo(make_vec_env("Pendulum-v1", 2), RND())[1]
    logged, info = {}, {}

    class Look(BonusLog):
        def _on_step(self):
            info.update(self.locals["infos"][0])
            return True

        def _on_rollout_end(self):
            super()._on_rollout_end()
            logged.update(self.logger.name_to_value)

    model.learn(40, callback=Look())
    for carries in (logged, info) if way != "replay" else (logged,):
        assert {"bonus/mean", "bonus/reward", "bonus/share", "bonus/beta"} <= set(carries)
        assert carries["bonus/beta"] == BETA  # Pendulum has no positive reward
        assert 0 < carries["bonus/share"] < 1
    if way != "replay":
        assert "reward_extrinsic" in info
        assert ("reward_intrinsic" in info) == (way == "step")


def test_an_eval_callback_accepts_environments_with_the_same_wrappers(tmp_path):
    _, model = make_ppo(make_vec_env("Pendulum-v1", 2, seed=0), RND(), around=VecNormalize)
    plain = make_vec_env("Pendulum-v1", 1, seed=1)
    twin = VecNormalize(BonusVecEnv(plain, NoBonus()), training=False, norm_reward=False)
    callback = EvalCallback(twin, eval_freq=16, n_eval_episodes=1, log_path=str(tmp_path))
    model.learn(64, callback=callback)
    assert callback.last_mean_reward < 0  # extrinsic rewards
    assert np.allclose(twin.obs_rms.mean, model.get_env().obs_rms.mean)


@pytest.mark.parametrize("once", [True, False])
def test_an_evaluation_does_not_train_the_bonus(once):
    if once:
        env, model = make_ppo(make_vec_env("CartPole-v1", 2), RND())
    else:
        env = BonusVecEnv(make_vec_env("CartPole-v1", 2), RND(), learn_every=8)
        model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, device="cpu")
    model.learn(32)
    before, scale = env.stream.bonus.steps, env.stream.scale.state_dict()
    env.training = once  # as of a VecNormalize; not needed per rollout
    evaluate_policy(model, model.get_env(), n_eval_episodes=2, warn=False)
    assert env.stream.bonus.steps == before
    assert env.stream.scale.state_dict() == scale
    env.training = True
    model.learn(32)
    assert env.stream.bonus.steps > before


def test_a_model_loaded_without_its_bonus_raises_at_the_first_step(tmp_path):
    _, model = make_ppo(make_vec_env("CartPole-v1", 2), RND())
    model.save(tmp_path / "model")
    env = BonusVecEnv(make_vec_env("CartPole-v1", 2), RND())
    loaded = PPO.load(tmp_path / "model", env=env, device="cpu")
    loaded.predict(env.reset())
    with pytest.raises(
        RuntimeError, match=r"mimex.interop.sb3.save and load.*env.rollout_bonus\(\)"
    ):
        loaded.learn(32)
    assert env.stream.transitions <= 2
    loaded.rollout_buffer.bonus = env.rollout_bonus()
    loaded.learn(32)


@pytest.mark.parametrize(
    ("more", "reason"), [({"n_steps": 3}, "n_steps=1"), ({"n_sampled_goal": 4}, "hindsight")]
)
def test_unsupported_replay_arguments_raise_with_the_reason(more, reason):
    with pytest.raises(ValueError, match=reason):
        SAC(
            "MlpPolicy",
            "Pendulum-v1",
            replay_buffer_class=BonusReplayBuffer,
            replay_buffer_kwargs={"bonus": ReplayBonus(RND()), **more},
        )
