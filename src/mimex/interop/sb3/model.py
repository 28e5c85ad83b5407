"""Stable-Baselines3 models with a bonus: created, saved, loaded and logged.

Stable-Baselines3 writes pickles, which can execute code when they are loaded. The bonus is in a
separate file of safetensors and JSON, which cannot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import gymnasium
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import (
    VecEnv,
    VecNormalize,
    unwrap_vec_normalize,
    unwrap_vec_wrapper,
)

from mimex.bonus.base import IntrinsicReward
from mimex.interop.sb3.replay import BonusReplayBuffer, ReplayBonus
from mimex.interop.sb3.vec_env import BonusRolloutBuffer, BonusVecEnv, RolloutBonus
from mimex.train import checkpoint

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)

MODEL, NORMALIZER = "model.zip", "vec_normalize.pkl"  # Stable-Baselines3's own files
REPLAY, BONUS = "replay_buffer.pkl", "bonus.safetensors"


def with_bonus(
    env: VecEnv | gymnasium.Env[Any, Any] | str,
    bonus: IntrinsicReward,
    *,
    off_policy: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Arguments that give a Stable-Baselines3 algorithm a bonus, including its environment.

    ``PPO("MlpPolicy", **with_bonus(env, MIMEx()), n_steps=64)``, or
    ``SAC("MlpPolicy", **with_bonus(env, MIMEx(), off_policy=True))``. On-policy, the bonus is added
    to whole rollouts before returns are computed; off-policy, to sampled transitions.

    Args:
        env: The environments. With a VecNormalize, the bonus sees normalized observations and is
            added to normalized rewards.
        bonus: The intrinsic reward.
        off_policy: Whether the algorithm has a replay buffer (SAC, TD3, DDPG, DQN).
        options: As of ``BonusVecEnv``; off-policy, of ``ReplayBonus``.
    """
    if not isinstance(env, VecEnv):
        given = env
        env = make_vec_env(given if isinstance(given, str) else lambda: given, 1)
    if unwrap_vec_wrapper(env, BonusVecEnv) is not None:
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
        "rollout_buffer_kwargs": {"bonus": env.rollout_bonus()},
    }


def save(model: BaseAlgorithm, folder: Path | str) -> None:
    """Saves model and bonus, and replay buffer and VecNormalize if there are any, to a folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save(folder / BONUS, find_bonus(model).state_dict())
    model.save(folder / MODEL)
    if isinstance(model, OffPolicyAlgorithm):
        model.save_replay_buffer(folder / REPLAY)
    normalizer = model.get_vec_normalize_env()
    if normalizer is not None:
        normalizer.save(str(folder / NORMALIZER))


def load(
    algorithm: type[Algorithm],
    folder: Path | str,
    env: VecEnv,
    bonus: ReplayBonus | None = None,
    **kwargs: Any,
) -> Algorithm:
    """Loads what ``save`` wrote: ``load(PPO, "run", **with_bonus(env, bonus))``.

    Args:
        algorithm: ``PPO``, ``SAC``, ...
        folder: The folder of ``save``.
        env: Environments as at saving; on-policy, with a new ``BonusVecEnv``.
        bonus: Off-policy: a new ``ReplayBonus``; that of ``replay_buffer_kwargs`` if None.
        kwargs: As of the algorithm's ``load``.
    """
    folder = Path(folder)
    normalizer = unwrap_vec_normalize(env)
    if normalizer is not None:
        saved = VecNormalize.load(str(folder / NORMALIZER), normalizer.venv)
        normalizer.obs_rms, normalizer.ret_rms = saved.obs_rms, saved.ret_rms
    model = algorithm.load(folder / MODEL, env=env, **kwargs)
    if isinstance(model, OffPolicyAlgorithm):
        bonus = bonus or kwargs.get("replay_buffer_kwargs", {}).get("bonus")
        if bonus is None:
            raise ValueError(
                "an off-policy model needs a bonus made as before: "
                "load(SAC, folder, **with_bonus(env, bonus, off_policy=True))."
            )
        model.load_replay_buffer(folder / REPLAY)
        assert isinstance(model.replay_buffer, BonusReplayBuffer)
        model.replay_buffer.bonus = bonus
    found = find_bonus(model)
    buffer = getattr(model, "rollout_buffer", None)
    if isinstance(buffer, BonusRolloutBuffer) and isinstance(found, RolloutBonus):
        buffer.bonus = found
    found.load_state_dict(checkpoint.load(folder / BONUS))
    return model


class BonusLog(BaseCallback):
    """Logs ``bonus/mean`` (raw), ``bonus/reward``, ``bonus/share`` and ``bonus/beta``.

    The first three are averages over recent steps (off-policy: sampled batches), with the half-life
    of the scale. ``model.learn(100_000, callback=BonusLog())``, on- and off-policy.
    """

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        for name, value in find_bonus(self.model).report.items():
            self.logger.record(name, value)


def find_bonus(model: BaseAlgorithm) -> RolloutBonus | ReplayBonus:
    """The bonus of a model, from its replay buffer or its environments."""
    replay = getattr(model, "replay_buffer", None)
    if isinstance(replay, BonusReplayBuffer):
        return replay.bonus
    env = model.get_env()
    wrapper = None if env is None else unwrap_vec_wrapper(env, BonusVecEnv)
    if wrapper is None:
        raise ValueError(
            f"{type(model).__name__} has no bonus: neither a BonusVecEnv around its environments "
            "nor a BonusReplayBuffer."
        )
    return wrapper.stream
