"""What does not fit is refused, by name: arguments, sizes, and arrays of saved states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

import torch
from torch import Tensor


def require_positive(**values: int) -> None:
    """Refuses an argument below 1."""
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")


def require_choice(choices: Any, **values: str) -> None:
    """Refuses an argument that is none of the choices of a Literal."""
    for name, value in values.items():
        if value not in (allowed := get_args(choices)):
            raise ValueError(f"{name}={value!r} is unknown: use one of {', '.join(allowed)}.")


@contextmanager
def fitting_into_memory(**sizes: int | None) -> Iterator[None]:
    """Names the sizes of arrays that cannot be allocated."""
    try:
        yield
    except (RuntimeError, TypeError, OverflowError) as error:  # the latter beyond 64 bits
        named = ", ".join(f"{name}={value}" for name, value in sizes.items())
        why = str(error).partition("\n")[0]  # a trace of C++ may follow
        raise ValueError(f"{named} do not fit into memory: {why}") from error


def copied(**arrays: Tensor | None) -> dict[str, Tensor]:
    """A state of copies of the arrays that there are."""
    return {name: array.clone() for name, array in arrays.items() if array is not None}


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
