import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from mimex import RND, BonusScale, MIMEx
from mimex.doctor import all_well, diagnose
from mimex.doctor.probe import NotingBonus, ProbeEnv
from mimex.interop.sb3 import (
    BonusDictRolloutBuffer,
    BonusRolloutBuffer,
    BonusVecEnv,
    load,
    save,
)


def ppo(env, at_once, **kwargs):
    if at_once:
        kwargs |= {
            "rollout_buffer_class": BonusRolloutBuffer,
            "rollout_buffer_kwargs": {"pays": env.at_once()},
        }
    return PPO(
        "MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu", **kwargs
    )


@pytest.mark.parametrize("unit", ["task", "raw"])
def test_a_rollout_at_once_trains_on_the_same_returns_as_step_by_step(unit):
    """With a bonus that does not learn, when it is asked makes no difference."""
    returns, weights = [], []
    for at_once in (False, True):
        env = DummyVecEnv([lambda n=n: ProbeEnv(n) for n in range(2)])
        scale = BonusScale(0.5, unit)
        model = ppo(BonusVecEnv(env, NotingBonus(3), beta=scale), at_once)
        model.learn(64)
        returns.append(model.rollout_buffer.returns)
        weights.append(torch.cat([p.flatten() for p in model.policy.parameters()]))
    np.testing.assert_allclose(returns[0], returns[1], rtol=1e-5)
    torch.testing.assert_close(weights[0], weights[1])
    assert np.isfinite(returns[1]).all()
    assert np.abs(returns[1]).max() > 0


def test_the_doctor_finds_it_well():
    def setup(make_env=lambda: gymnasium.make("CartPole-v1"), bonus=None):
        env = BonusVecEnv(DummyVecEnv([make_env] * 2), bonus or MIMEx(), beta=0.5, learn_every=16)
        return ppo(env, at_once=True).learn(64)

    checks = diagnose(setup)
    assert all_well(checks)
    assert {check.status for check in checks} == {"pass"}


def test_each_window_is_learned_once_in_pieces():
    bonus = RND()
    env = BonusVecEnv(make_vec_env("CartPole-v1", 2, seed=0), bonus, learn_every=24)
    ppo(env, at_once=True).learn(128)
    assert bonus.steps == 6  # of each 64: 24, 24 and 16
    assert env.stream.transitions == 128


def test_a_rollout_that_a_callback_gave_up_is_forgotten():
    env = BonusVecEnv(make_vec_env("CartPole-v1", 2, seed=0), RND(), learn_every=64)
    model = ppo(env, at_once=True)
    model.learn(64, callback=lambda values, _: values["n_steps"] < 10)
    assert env.stream.transitions == 0
    model.learn(64)
    assert env.stream.transitions == 64


def test_the_reward_of_vec_normalize_is_joined_by_the_bonus_as_it_is():
    bonus = NotingBonus(1, lambda w: torch.full((len(w),), 3.0))
    inner = BonusVecEnv(make_vec_env("Pendulum-v1", 2, seed=0), bonus, beta=BonusScale(1.0, "raw"))
    pays = inner.at_once()
    buffers = {"rollout_buffer_class": BonusRolloutBuffer, "rollout_buffer_kwargs": {"pays": pays}}
    model = PPO("MlpPolicy", VecNormalize(inner), n_steps=8, batch_size=8, device="cpu", **buffers)
    model.learn(16)
    assert model.rollout_buffer.rewards.max() <= 3.0  # Pendulum pays nothing above zero
    assert model.rollout_buffer.rewards.max() > 1.0


def test_dict_observations():
    class Pair(gymnasium.ObservationWrapper):
        def __init__(self):
            super().__init__(ProbeEnv())
            self.observation_space = gymnasium.spaces.Dict({"a": self.env.observation_space})

        def observation(self, observation):
            return {"a": observation}

    env = BonusVecEnv(DummyVecEnv([Pair]), NotingBonus(3), beta=BonusScale(1.0, "raw"))
    model = A2C(
        "MultiInputPolicy", env, n_steps=4, device="cpu",
        rollout_buffer_class=BonusDictRolloutBuffer,
        rollout_buffer_kwargs={"pays": env.at_once()},
    )  # fmt: skip
    model.learn(4)
    assert (model.rollout_buffer.rewards >= 1.0).all()


def test_saved_and_loaded_it_goes_on_and_a_bare_pickle_says_what_is_missing(tmp_path):
    def environments():
        return BonusVecEnv(make_vec_env("CartPole-v1", 2, seed=0), MIMEx(length=3), learn_every=32)

    model = ppo(environments(), at_once=True)
    model.learn(64)
    save(model, tmp_path)
    env = environments()
    loaded = load(PPO, tmp_path, env, device="cpu")
    assert env.stream.bonus.steps == 2
    loaded.learn(64)
    assert env.stream.bonus.steps == 4
    bare = PPO.load(tmp_path / "model.zip", env=environments(), device="cpu")
    with pytest.raises(RuntimeError, match="holds no bonus"):
        bare.learn(64)
