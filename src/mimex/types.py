"""Data types shared by all packages: windows, arrays and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = Tensor | np.ndarray[Any, Any]
"""Array types accepted from users."""

Metrics = dict[str, float]
"""Values to log, by name: ``bonus/loss``, ``ppo/std``, ..."""


@dataclass(frozen=True, eq=False, init=False)
class Window:
    """A batch of trailing windows of a trajectory, oldest step first.

    NumPy arrays are shared, not copied.

    Attributes:
        features: ``(B, L, D)`` floats; also ``(B, L)`` integers for discrete observations, or
            ``(B, L, ...)`` raw observations for a bonus with an encoder.
        valid: ``(B, L)`` bool; False where the window reaches back before its episode's first
            observation. All True by default.
        actions: ``(B, L, A)``, or ``(B, L)`` integers for discrete actions:
            ``actions[:, k]`` is the action taken BEFORE ``features[:, k]``: one transition is
            ``(features[:, k - 1], actions[:, k], features[:, k])``.
    """

    features: Tensor
    valid: Tensor
    actions: Tensor | None

    def __init__(
        self, features: Array, valid: Array | None = None, actions: Array | None = None
    ) -> None:
        features = _tensor("features", features)
        if features.ndim < 2:
            raise ValueError(
                f"features has shape {tuple(features.shape)}; expected (B, L, D): a batch of "
                "windows of length L. For one window add a dimension: features[None]."
            )
        batch, length = features.shape[:2]
        if valid is None:
            valid = torch.ones(batch, length, dtype=torch.bool, device=features.device)
        valid = _tensor("valid", valid).to(features.device)
        if valid.dtype != torch.bool or valid.shape != (batch, length):
            raise ValueError(
                f"valid is {valid.dtype} of shape {tuple(valid.shape)}; expected bool of shape "
                f"{(batch, length)}, the first two dimensions of features."
            )
        if actions is not None:
            actions = _tensor("actions", actions).to(features.device)
            if actions.shape[:2] != (batch, length) or actions.ndim > 3:
                raise ValueError(
                    f"actions has shape {tuple(actions.shape)}; expected ({batch}, {length}, A), "
                    f"or ({batch}, {length}) integers: one action per observation of the window."
                )
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "valid", valid)
        object.__setattr__(self, "actions", actions)

    def __len__(self) -> int:
        return int(self.features.shape[0])

    def __getitem__(self, rows: Tensor | slice) -> Window:
        """Selects windows of the batch."""
        actions = None if self.actions is None else self.actions[rows]
        return Window(self.features[rows], self.valid[rows], actions)

    def to(self, device: torch.device | str) -> Window:
        """Moves the windows to a device."""
        actions = None if self.actions is None else self.actions.to(device)
        return Window(self.features.to(device), self.valid.to(device), actions)

    def clone(self) -> Window:
        """Copies the windows."""
        actions = None if self.actions is None else self.actions.clone()
        return Window(self.features.clone(), self.valid.clone(), actions)

    @staticmethod
    def cat(windows: Sequence[Window]) -> Window:
        """Concatenates batches of windows, and their actions if they have any."""
        actions = [window.actions for window in windows if window.actions is not None]
        return Window(
            torch.cat([window.features for window in windows]),
            torch.cat([window.valid for window in windows]),
            torch.cat(actions) if actions else None,
        )

    @property
    def length(self) -> int:
        """Steps per window, L."""
        return int(self.features.shape[1])


def _tensor(name: str, value: Any) -> Tensor:
    try:
        tensor: Tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} cannot be read as an array: {error}") from error
    if tensor.is_complex():
        raise TypeError(f"{name} has complex numbers; expected real ones.")
    return tensor.detach()
