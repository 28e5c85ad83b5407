"""Rollout buffers that pay the bonus of a whole rollout at once, just before its returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from mimex.interop.stream import BonusStream


class RolloutBonus:
    """Hands a rollout its bonus; made by ``BonusVecEnv.at_once``.

    A pickle of this, as Stable-Baselines3 makes one of every model, holds no bonus.
    """

    def __init__(self, stream: BonusStream) -> None:
        stream.at_once = True
        self.stream: BonusStream | None = stream

    def settle(self) -> np.ndarray[Any, Any]:
        """The intrinsic rewards ``(M, N)`` of the steps since the last time."""
        if self.stream is None:
            raise RuntimeError(
                "this rollout buffer came out of a pickle, which does not hold the bonus: use "
                "mimex.interop.sb3.load, or set model.rollout_buffer.pays = env.at_once()."
            )
        return self.stream.settle().intrinsic.numpy()

    def __getstate__(self) -> dict[str, Any]:
        return {"stream": None}


class BonusRolloutBuffer(RolloutBuffer):
    """Stable-Baselines3's rollout buffer, which adds the bonus before it computes returns.

    Args:
        args: As of Stable-Baselines3's.
        pays: ``env.at_once()`` of the ``BonusVecEnv``.
        kwargs: As of Stable-Baselines3's.
    """

    def __init__(self, *args: Any, pays: RolloutBonus, **kwargs: Any) -> None:
        self.pays = pays
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        super().reset()
        if self.pays.stream is not None:  # a callback may have given up the rollout before
            self.pays.stream.forget_unpaid()

    def compute_returns_and_advantage(
        self, last_values: torch.Tensor, dones: np.ndarray[Any, Any]
    ) -> None:
        self.rewards += self.pays.settle().astype(self.rewards.dtype)
        super().compute_returns_and_advantage(last_values, dones)


class BonusDictRolloutBuffer(BonusRolloutBuffer, DictRolloutBuffer):
    """``BonusRolloutBuffer`` for Dict observations."""
