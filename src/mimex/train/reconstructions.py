"""Reconstructions: windows, their masks, and the bonus's predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from mimex.bonus.base import IntrinsicReward
from mimex.contracts import SHOWN_WINDOWS
from mimex.types import Window

NUMBERS = 64
"""Features of a step that are recorded."""


@runtime_checkable
class Reconstructs(Protocol):
    """A bonus that reconstructs masked inputs."""

    def inputs(self, window: Window) -> Tensor:
        """The features ``(B, L, D)`` as the network takes them."""

    def reconstruct(self, window: Window) -> tuple[Tensor, Tensor]:
        """What is hidden, ``(B, L)`` or ``(B, L, D)``, and the prediction ``(B, L, D)``."""


def reconstructions(
    bonus: IntrinsicReward, windows: Mapping[str, Window | None]
) -> list[dict[str, Any]]:
    """The bonus's reconstructions of windows, by kind; empty if it does not reconstruct."""
    if not isinstance(bonus, Reconstructs):
        return []
    strips = []
    for kind, window in windows.items():
        if window is None or len(window) == 0:
            continue
        full = window.valid.all(dim=1).nonzero().flatten()[:SHOWN_WINDOWS]
        if len(full) == 0:
            continue
        actions = None if window.actions is None else window.actions[full]
        some = Window(window.features[full], window.valid[full], actions)
        hidden, prediction = bonus.reconstruct(some)
        seen = bonus.inputs(some)
        # Of many features, those with the largest variance over the windows' steps.
        spread = seen.flatten(0, 1).var(dim=0, correction=0)
        kept = spread.topk(min(NUMBERS, len(spread))).indices.sort().values
        strips.append(
            {
                "kind": kind,
                "numbers": kept.to(torch.int32),
                "features": seen[..., kept],
                "hidden": hidden if hidden.ndim == 2 else hidden[..., kept],
                "prediction": prediction.detach()[..., kept],
                "reward": bonus.reward(some),
            }
        )
    return strips
