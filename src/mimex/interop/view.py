"""Which part of an observation a bonus sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

View = str | int | slice | Sequence[str] | Sequence[int] | None
"""An entry of a Dict observation, or several; an index of a flat Box, several, or a slice; or all.
"""

Select = Callable[[Any], Any]


def select(space: spaces.Space[Any], view: View) -> tuple[spaces.Space[Any], Select]:
    """The space of the part of an observation that is seen, and what takes it from a batch.

    Args:
        space: Of one observation.
        view: The part; everything when None.
    """
    if view is None:
        return space, lambda values: values
    if isinstance(space, spaces.Dict):
        return _entries(space, view)
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return _features(space, view)
    raise ValueError(
        f"view={view!r} takes keys of a Dict observation, or indices of a flat Box, and the "
        f"observation space is {space}: leave view out, or give encoder=... instead."
    )


def _entries(space: spaces.Dict, view: Any) -> tuple[spaces.Space[Any], Select]:
    keys = (view,) if isinstance(view, str) else view
    several = isinstance(keys, Sequence) and len(keys) > 0
    if not several or any(key not in space.spaces for key in keys):
        raise ValueError(
            f"view={view!r} is no part of the observation, which has the keys "
            f"{', '.join(map(repr, space.spaces))}: give one of them, or a list of several."
        )
    if isinstance(view, str):
        return space.spaces[view], lambda values: values[view]
    chosen = spaces.Dict({key: space.spaces[key] for key in keys})
    return chosen, lambda values: {key: values[key] for key in keys}


def _features(space: spaces.Box, view: Any) -> tuple[spaces.Space[Any], Select]:
    size = space.shape[0]
    index = _indices(view, size)
    if not index:
        raise ValueError(
            f"view={view!r} is no part of the observation, which has {size} features, 0 to "
            f"{size - 1}: give some of these indices, or a slice of them."
        )
    low, high = space.low[index], space.high[index]
    chosen = spaces.Box(low, high, dtype=space.dtype)
    return chosen, lambda values: torch.as_tensor(values)[..., index]


def _indices(view: Any, size: int) -> list[int]:
    """The indices of features, from the first; none where any is no index of a feature."""
    if isinstance(view, slice):
        # Python would cut off at the end what is out of range.
        ends = [end for end in (view.start, view.stop) if end is not None]
        whole = all(_is_integer(n) for n in (*ends, 1 if view.step is None else view.step))
        if not whole or view.step == 0 or any(not -size <= end <= size for end in ends):
            return []
        return list(range(size))[view]
    chosen = [view] if _is_integer(view) else view
    if not isinstance(chosen, Sequence | np.ndarray):
        return []
    if not all(_is_integer(n) and -size <= n < size for n in chosen):
        return []
    return [int(n) % size for n in chosen]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
