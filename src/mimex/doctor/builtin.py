"""The wrappers of this package as set-ups for the doctor, who examines them when asked of none."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from mimex.bonus.base import IntrinsicReward
from mimex.bonus.mimex import MIMEx
from mimex.doctor.diagnose import Setup
from mimex.doctor.probe import MakeEnv
from mimex.interop.single import wrap
from mimex.interop.vector import wrap_vector


def _pendulum() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1")


def single(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """``mimex.wrap`` around one environment."""
    return wrap(make_env(), bonus or MIMEx(), beta=0.5, learn_every=32)


def _vector(mode: AutoresetMode) -> Setup:
    def setup(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
        return wrap_vector(
            SyncVectorEnv([make_env] * 2, autoreset_mode=mode),
            bonus or MIMEx(),
            beta=0.5,
            learn_every=32,
        )

    return setup


def sb3_ppo(make_env: MakeEnv = _pendulum, bonus: IntrinsicReward | None = None) -> Any:
    """``BonusVecEnv`` under PPO."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    from mimex.interop.sb3 import BonusVecEnv

    env = BonusVecEnv(DummyVecEnv([make_env] * 2), bonus or MIMEx(), beta=0.5, learn_every=32)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, device="cpu")
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
        replay_buffer_kwargs={"pays": ReplayBonus(bonus or MIMEx(), beta=0.5)},
        buffer_size=1000,
        device="cpu",
    )
    return model.learn(120)


def builtin_setups() -> dict[str, Setup]:
    """All of them by name; those of Stable-Baselines3 where it is installed."""
    setups: dict[str, Setup] = {"mimex.wrap": single}
    for mode in AutoresetMode:
        setups[f"mimex.wrap_vector, autoreset {mode.name}"] = _vector(mode)
    if find_spec("stable_baselines3") is not None:
        setups |= {"sb3 BonusVecEnv, PPO": sb3_ppo, "sb3 BonusReplayBuffer, SAC": sb3_sac}
    return setups
