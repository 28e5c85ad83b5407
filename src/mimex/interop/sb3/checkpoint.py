"""A Stable-Baselines3 model together with its bonus: saved, loaded, and in the logger.

Stable-Baselines3 writes pickles, which execute code when they are loaded. The bonus is beside
them in a file of its own, safetensors and JSON, that executes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from mimex.interop.sb3.replay import BonusReplayBuffer, ReplayBonus
from mimex.interop.sb3.setup import find_wrapper
from mimex.interop.sb3.vec_env import BonusRolloutBuffer, BonusVecEnv, RolloutBonus
from mimex.train import checkpoint

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)

MODEL, NORMALIZER = "model.zip", "vec_normalize.pkl"  # Stable-Baselines3's own files
REPLAY, BONUS = "replay_buffer.pkl", "bonus.safetensors"


def save(model: BaseAlgorithm, folder: Path | str) -> None:
    """Writes model, bonus, replay buffer and VecNormalize (where there are) to a folder."""
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
    """Reads what ``save`` wrote, for environments and a bonus that are set up as they were.

    ``load(PPO, "run", **with_bonus(env, bonus))``.

    Args:
        algorithm: ``PPO``, ``SAC``, ...
        folder: Where it was saved.
        env: The environments; for on-policy algorithms with a new ``BonusVecEnv`` among them.
        bonus: For off-policy algorithms: a new ``ReplayBonus``; that of ``replay_buffer_kwargs``
            when left out.
        kwargs: As of the algorithm's ``load``.
    """
    folder = Path(folder)
    normalizer = find_wrapper(env, VecNormalize)
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


def find_bonus(model: BaseAlgorithm) -> RolloutBonus | ReplayBonus:
    """Where the bonus of a model is: in its replay buffer or around its environments."""
    replay = getattr(model, "replay_buffer", None)
    if isinstance(replay, BonusReplayBuffer):
        return replay.bonus
    wrapper = find_wrapper(model.get_env(), BonusVecEnv)
    if wrapper is None:
        raise ValueError(
            f"{type(model).__name__} has no bonus: neither a BonusVecEnv around its environments "
            "nor a BonusReplayBuffer."
        )
    return wrapper.stream


class BonusLog(BaseCallback):
    """Records ``bonus/mean`` (raw), ``bonus/reward``, ``bonus/share`` and ``bonus/beta``.

    The first three are averages over recent steps (off-policy: sampled batches), with the half-life
    of the scale. ``model.learn(100_000, callback=BonusLog())``, for all algorithms and ways to pay.
    """

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        for name, value in find_bonus(self.model).report.items():
            self.logger.record(name, value)
