"""Reading saved states: what does not fit is refused, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def read_state(
    name: str, value: Any, shape: Sequence[int], kind: torch.dtype | None = None
) -> Tensor:
    """A copy of an array of a saved state, whose shape has to begin so.

    Args:
        name: Of the array.
        value: What the state has there.
        shape: Its first dimensions, and all of them where ``kind`` is given.
        kind: Its type; None for any numbers.
    """
    if not isinstance(value, Tensor):
        raise ValueError(f"the state's {name} is {value!r}; expected an array.")
    fits = value.shape == tuple(shape) if kind else value.shape[: len(shape)] == tuple(shape)
    if not fits or (kind is not None and value.dtype != kind):
        raise ValueError(
            f"the state's {name} is {value.dtype} of shape {tuple(value.shape)}; expected "
            f"{kind or 'numbers'} of {tuple(shape)}."
        )
    return value.clone()
