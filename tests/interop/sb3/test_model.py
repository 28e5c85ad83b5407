import numpy as np
import pytest
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from mimex import MIMEx
from mimex.interop.sb3 import BonusReplayBuffer, BonusVecEnv, ReplayBonus, load, save


def pendulum(num_envs=2):
    return make_vec_env("Pendulum-v1", num_envs, seed=0)


def test_ppo_is_loaded_with_its_bonus_and_vec_normalize(tmp_path):
    def environments():
        return VecNormalize(BonusVecEnv(pendulum(), MIMEx(length=3), learn_every=16))

    env = environments()
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, device="cpu")
    model.learn(64)
    save(model, tmp_path / "run")
    fresh = environments()
    loaded = load(PPO, tmp_path / "run", fresh, device="cpu")
    assert fresh.stream.bonus.steps == env.stream.bonus.steps == 4
    theirs, ours = (e.stream.bonus.network.state_dict() for e in (env, fresh))
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    assert fresh.obs_rms.count == env.obs_rms.count
    loaded.learn(32, reset_num_timesteps=False)
    assert fresh.stream.bonus.steps == 6


def test_sac_is_loaded_with_replay_buffer_and_bonus_and_continues(tmp_path):
    held = ReplayBonus(MIMEx(length=3), beta=0.1)
    model = SAC(
        "MlpPolicy", pendulum(1), learning_starts=20, batch_size=8, buffer_size=60, device="cpu",
        replay_buffer_class=BonusReplayBuffer, replay_buffer_kwargs={"bonus": held},
    )  # fmt: skip
    model.learn(40)
    save(model, tmp_path)
    again = ReplayBonus(MIMEx(length=3), beta=0.1)
    loaded = load(SAC, tmp_path, pendulum(1), again, device="cpu")
    assert again.bonus.steps == held.bonus.steps == 20
    for buffer in (model.replay_buffer, loaded.replay_buffer):
        np.random.seed(0)  # noqa: NPY002 - Stable-Baselines3 samples with it
        buffer.rewards_sampled = buffer.sample(16).rewards
    assert torch.equal(model.replay_buffer.rewards_sampled, loaded.replay_buffer.rewards_sampled)
    loaded.learn(10, reset_num_timesteps=False)
    assert again.bonus.steps > 21


def test_a_pickled_model_predicts_without_its_bonus(tmp_path):
    held = ReplayBonus(MIMEx(length=3), encoder=lambda x: x.float())
    model = SAC(
        "MlpPolicy", pendulum(1), learning_starts=5, batch_size=4, buffer_size=20, device="cpu",
        replay_buffer_class=BonusReplayBuffer, replay_buffer_kwargs={"bonus": held},
    )  # fmt: skip
    model.learn(10)
    model.save(tmp_path / "model")
    loaded = SAC.load(tmp_path / "model", device="cpu", env=pendulum(1))
    assert loaded.predict(np.zeros(3, np.float32))[0].shape == (1,)
    assert loaded.replay_buffer.bonus.bonus is None
    with pytest.raises(RuntimeError, match=r"no bonus.*ReplayBonus"):
        loaded.learn(10)


def test_saving_a_model_without_bonus_raises(tmp_path):
    with pytest.raises(ValueError, match="PPO has no bonus"):
        save(PPO("MlpPolicy", pendulum(1), n_steps=8, batch_size=8, device="cpu"), tmp_path)
