"""Batches of windows, taken apart and put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mimex.types import Window


def parts(window: Window) -> dict[str, Tensor]:
    """The arrays of a batch of windows by name."""
    arrays = {"features": window.features, "valid": window.valid}
    return arrays if window.actions is None else {**arrays, "actions": window.actions}


def whole(arrays: Mapping[str, Tensor]) -> Window:
    """The batch of windows that ``parts`` took apart."""
    return Window(arrays["features"], arrays["valid"], arrays.get("actions"))


def chosen(window: Window, rows: Tensor | slice) -> Window:
    """Some windows of a batch."""
    return whole({name: array[rows] for name, array in parts(window).items()})


def joined(windows: Sequence[Window]) -> Window:
    """Several batches of windows as one."""
    arrays = [parts(window) for window in windows]
    return whole({name: torch.cat([array[name] for array in arrays]) for name in arrays[0]})
