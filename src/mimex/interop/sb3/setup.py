"""A bonus for any algorithm of Stable-Baselines3 in one line."""

from __future__ import annotations

from typing import Any, TypeVar

import gymnasium
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from mimex.bonus.base import IntrinsicReward
from mimex.interop.sb3.replay import BonusReplayBuffer, ReplayBonus
from mimex.interop.sb3.vec_env import BonusRolloutBuffer, BonusVecEnv

Wrapper = TypeVar("Wrapper", bound=VecEnvWrapper)


def with_bonus(
    env: VecEnv | gymnasium.Env[Any, Any] | str,
    bonus: IntrinsicReward,
    *,
    off_policy: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """The arguments that give an algorithm of Stable-Baselines3 a bonus, its environment included.

    ``PPO("MlpPolicy", **with_bonus(env, MIMEx()), n_steps=64)``, or
    ``SAC("MlpPolicy", **with_bonus(env, MIMEx(), off_policy=True))``. On-policy, a rollout is
    rewarded at once, before returns are computed; off-policy, steps are when they are sampled.

    Args:
        env: The environments. Of a VecNormalize the bonus sees normalized observations and is
            sized beside normalized rewards.
        bonus: The intrinsic reward.
        off_policy: Whether the algorithm has a replay buffer (SAC, TD3, DDPG, DQN).
        options: As of ``BonusVecEnv``; off-policy, of ``ReplayBonus``.
    """
    if not isinstance(env, VecEnv):
        given = env
        env = make_vec_env(given if isinstance(given, str) else lambda: given, 1)
    if find_wrapper(env, BonusVecEnv) is not None:
        raise ValueError(
            f"env={env} has a BonusVecEnv already, and steps would be rewarded twice: give "
            "with_bonus the environments without one."
        )
    if off_policy:
        return {
            "env": env,
            "replay_buffer_class": BonusReplayBuffer,
            "replay_buffer_kwargs": {"bonus": ReplayBonus(bonus, **options)},
        }
    env = BonusVecEnv(env, bonus, **options)
    return {
        "env": env,
        "rollout_buffer_class": BonusRolloutBuffer,
        "rollout_buffer_kwargs": {"bonus": env.at_once()},
    }


def find_wrapper(env: VecEnv | None, kind: type[Wrapper]) -> Wrapper | None:
    """The outermost wrapper of a kind around environments."""
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, kind):
            return env
        env = env.venv
    return None
