"""Checks of arguments and of the arrays of saved states; they raise ValueError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor


def require_positive(**values: int | tuple[int, ...] | None) -> None:
    """Requires integers of at least 1; None is not checked."""
    for name, value in values.items():
        sizes = value if isinstance(value, tuple) else (value,)
        if not all(size is None or size >= 1 for size in sizes):
            raise ValueError(f"{name}={value} must be at least 1.")


def require_range(section: str, settings: object, interval: str, *names: str) -> None:
    """Requires that settings are in an interval, such as "[0, 1)"; each item of a tuple.

    Args:
        section: Section of the settings, for messages.
        settings: The settings.
        interval: The interval; "inf" as its end leaves values unbounded, but finite.
        names: Names of the settings.
    """
    low, high = (float(end) for end in interval[1:-1].split(","))
    for name in names:
        value = getattr(settings, name)
        for number in value if isinstance(value, tuple) else (value,):
            above = number >= low if interval[0] == "[" else number > low
            below = number <= high if interval[-1] == "]" else number < high
            if not (above and below):
                raise ValueError(f"{section}.{name} is {value!r}, but must be in {interval}.")


def require_choice(choices: Any, **values: str) -> None:
    """Requires one of the values of a Literal."""
    for name, value in values.items():
        if value not in (allowed := get_args(choices)):
            raise ValueError(f"{name}={value!r} is unknown: use one of {', '.join(allowed)}.")


def read_state(
    name: str, value: Any, shape: Sequence[int], dtype: torch.dtype | None = None
) -> Tensor:
    """Copies an array of a saved state.

    Args:
        name: Name of the array, for messages.
        value: The saved value.
        shape: Expected shape; without ``dtype``, its first dimensions.
        dtype: Expected type; None for any.
    """
    if not isinstance(value, Tensor):
        raise ValueError(f"the state's {name} is {value!r}; expected an array.")
    fits = value.shape == tuple(shape) if dtype else value.shape[: len(shape)] == tuple(shape)
    if not fits or (dtype is not None and value.dtype != dtype):
        raise ValueError(
            f"the state's {name} is {value.dtype} of shape {tuple(value.shape)}; expected "
            f"{dtype or 'values'} of {tuple(shape)}."
        )
    return value.clone()
