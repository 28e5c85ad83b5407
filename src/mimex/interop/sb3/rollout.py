"""Rollout buffers that pay the bonus of a whole rollout at once, just before its returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from mimex.interop.stream import BonusStream


class RolloutBonus:
    """Hands a rollout its bonus; made by ``BonusVecEnv.at_once``.

    A pickle of this, as Stable-Baselines3 makes one of every model, holds no bonus.
    """

    def __init__(self, stream: BonusStream) -> None:
        stream.at_once = True
        self.stream: BonusStream | None = stream

    def require(self) -> BonusStream:
        """What pays, or an error that says where it went."""
        if self.stream is None:
            raise RuntimeError(
                "this model came out of a file of Stable-Baselines3, which holds no bonus: "
                "save and load it with mimex.interop.sb3.save and load, or go on with a bonus that "
                "has learned nothing: model.rollout_buffer.pays = env.at_once()."
            )
        return self.stream

    def __getstate__(self) -> dict[str, Any]:
        return {"stream": None}


class BonusRolloutBuffer(RolloutBuffer):
    """Stable-Baselines3's rollout buffer, which adds the bonus before it computes returns.

    With Dict observations it makes a ``BonusDictRolloutBuffer``. The bonus is sized beside the
    rewards that the agent trains on: where a VecNormalize is around the ``BonusVecEnv``, beside
    normalised ones.

    Args:
        args: As of Stable-Baselines3's.
        pays: ``env.at_once()`` of the ``BonusVecEnv``.
        kwargs: As of Stable-Baselines3's.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> BonusRolloutBuffer:
        space = kwargs.get("observation_space", args[1] if len(args) > 1 else None)
        chosen = BonusDictRolloutBuffer if isinstance(space, spaces.Dict) else cls
        return super().__new__(chosen)

    def __init__(self, *args: Any, pays: RolloutBonus, **kwargs: Any) -> None:
        self.pays = pays
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        super().reset()
        if self.pays.stream is not None:  # a callback may have given up the rollout before
            self.pays.stream.forget_unpaid()

    def add(self, *args: Any, **kwargs: Any) -> None:
        self.pays.require()  # before a rollout is played for nothing
        super().add(*args, **kwargs)

    def compute_returns_and_advantage(
        self, last_values: torch.Tensor, dones: np.ndarray[Any, Any]
    ) -> None:
        paid = self.pays.require().settle(self.rewards).intrinsic
        self.rewards += paid.numpy().astype(self.rewards.dtype)
        super().compute_returns_and_advantage(last_values, dones)


class BonusDictRolloutBuffer(BonusRolloutBuffer, DictRolloutBuffer):
    """``BonusRolloutBuffer`` for Dict observations."""
