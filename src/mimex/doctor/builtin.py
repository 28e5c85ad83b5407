"""The wrappers of this package as set-ups for the doctor, who examines them when asked of none."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from mimex.bonus.base import IntrinsicReward
from mimex.bonus.mimex import MIMEx
from mimex.bonus.scale import BonusScale
from mimex.data.tracker import WindowTracker
from mimex.doctor.diagnose import Setup
from mimex.doctor.probe import MakeEnv
from mimex.interop.vector import wrap, wrap_vector


def _pendulum() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1")


def single(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """``mimex.wrap`` around one environment."""
    return wrap(make_env(), bonus or MIMEx(normalise=True))


def own_loop(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """A loop of one's own, as in the README: a tracker, a bonus and a scale."""
    envs = SyncVectorEnv([make_env] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    bonus, scale = bonus or MIMEx(normalise=True), BonusScale()
    width = spaces.flatdim(envs.single_observation_space)
    tracker = WindowTracker(2, bonus.length, width)
    envs.action_space.seed(0)
    observation, _ = envs.reset(seed=0)
    starts = np.ones(2, bool)
    rows = []
    for _ in range(120):
        window = tracker.push(observation, starts)
        novelty, _ = bonus.learn(window)
        before = observation
        observation, reward, terminated, truncated, _ = envs.step(envs.action_space.sample())
        starts = terminated | truncated
        rows.append((before, scale.combine(reward, novelty)))
    total, extrinsic, intrinsic = (
        np.concatenate([getattr(paid, name).numpy() for _, paid in rows])
        for name in ("total", "extrinsic", "intrinsic")
    )
    return {
        "targets": total,
        "rewards": total,
        "observations": np.concatenate([before for before, _ in rows]),
        "extrinsic": extrinsic,
        "intrinsic": intrinsic,
        "bonus": bonus,
        "scale": scale,
    }


def _vector(mode: AutoresetMode) -> Setup:
    def setup(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
        return wrap_vector(
            SyncVectorEnv([make_env] * 2, autoreset_mode=mode),
            bonus or MIMEx(normalise=True),
        )

    return setup


def sb3_ppo(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """``BonusVecEnv`` under PPO."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    from mimex.interop.sb3 import BonusVecEnv

    env = BonusVecEnv(DummyVecEnv([make_env] * 2), bonus or MIMEx(normalise=True))
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, device="cpu")
    return model.learn(128)


def sb3_at_once(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """``BonusVecEnv`` and ``BonusRolloutBuffer`` under PPO."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    from mimex.interop.sb3 import BonusRolloutBuffer, BonusVecEnv

    env = BonusVecEnv(DummyVecEnv([make_env] * 2), bonus or MIMEx(normalise=True))
    model = PPO(
        "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy",
        env,
        n_steps=64,
        batch_size=64,
        n_epochs=1,
        device="cpu",
        rollout_buffer_class=BonusRolloutBuffer,
        rollout_buffer_kwargs={"bonus": env.at_once()},
    )
    return model.learn(128)


def sb3_sac(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """``BonusReplayBuffer`` under SAC."""
    from stable_baselines3 import SAC

    from mimex.interop.sb3 import BonusReplayBuffer, ReplayBonus

    model = SAC(
        "MlpPolicy",
        make_env(),
        learning_starts=100,
        replay_buffer_class=BonusReplayBuffer,
        replay_buffer_kwargs={"bonus": ReplayBonus(bonus or MIMEx(normalise=True))},
        buffer_size=1000,
        device="cpu",
    )
    return model.learn(120)


def builtin_setups() -> dict[str, Setup]:
    """All of them by name; those of Stable-Baselines3 where it is installed."""
    setups: dict[str, Setup] = {"a loop of one's own": own_loop, "mimex.wrap": single}
    for mode in AutoresetMode:
        setups[f"mimex.wrap_vector, autoreset {mode.name}"] = _vector(mode)
    if find_spec("stable_baselines3") is not None:
        setups |= {
            "sb3 BonusVecEnv, PPO": sb3_ppo,
            "sb3 BonusRolloutBuffer, PPO": sb3_at_once,
            "sb3 BonusReplayBuffer, SAC": sb3_sac,
        }
    return setups
