"""Gymnasium spaces: which part of an observation the bonus sees, and whether it is discrete."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

View = str | int | slice | Sequence[str] | Sequence[int] | None
"""A key of a Dict observation or several; or indices, ranges ("24:27"), slices or named groups of
the features of a flat Box; None for everything."""

Groups = Mapping[str, tuple[int, int]]
"""Named groups of features: first index, and the index after the last."""

Select = Callable[[Any], Any]


def all_discrete(space: spaces.Space[Any]) -> bool:
    """Whether all parts of a space are Discrete or MultiDiscrete, and so one-hot if flattened."""
    if isinstance(space, spaces.Dict):
        return all(all_discrete(part) for part in space.spaces.values())
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete)


def select(space: spaces.Space[Any], view: View) -> tuple[spaces.Space[Any], Select]:
    """The space of the part of an observation that a view selects, and a function that selects it.

    Args:
        space: Space of one observation.
        view: The part.
    """
    if view is None:
        return space, lambda values: values
    if isinstance(space, spaces.Dict):
        keys: Any = (view,) if isinstance(view, str) else view
        if not isinstance(keys, Sequence) or not keys or any(k not in space.spaces for k in keys):
            raise ValueError(
                f"view={view!r} is no part of the observation, which has the keys "
                f"{', '.join(map(repr, space.spaces))}: give one of them, or a list of several."
            )
        if isinstance(view, str):
            return space.spaces[view], lambda values: values[view]
        chosen = spaces.Dict({key: space.spaces[key] for key in keys})
        return chosen, lambda values: {key: values[key] for key in keys}
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        index = view_indices(view, space.shape[0])
        box = spaces.Box(space.low[index], space.high[index], dtype=space.dtype)
        return box, lambda values: torch.as_tensor(values)[..., index]
    raise ValueError(
        f"view={view!r} takes keys of a Dict observation, or indices of a flat Box, and the "
        f"observation space is {space}: leave view out, or give encoder=... instead."
    )


def view_indices(
    view: View, size: int, groups: Groups | None = None, name: str = "view"
) -> list[int]:
    """Indices of the features that a view selects, sorted and unique.

    Args:
        view: An index, a slice, a group name, a range as text, or several of them.
        size: Number of features.
        groups: Named groups of features.
        name: Name of the setting, for messages.
    """
    several = isinstance(view, Sequence | np.ndarray) and not isinstance(view, str)
    items: Any = view if several else (view,)
    parts = [_range(item, size, groups or {}) for item in items]
    if not parts or not all(parts):
        known = f" The groups of this observation are: {', '.join(groups)}." if groups else ""
        raise ValueError(
            f"{name}={view!r} is no part of the observation, which has {size} features, 0 to "
            f"{size - 1}: give some of these indices, or a range within 0:{size}.{known}"
        )
    return sorted({index for part in parts for index in part})


def _range(item: Any, size: int, groups: Groups) -> range:
    """The features of one item of a view; empty if it selects none, or any beyond ``size``."""
    if isinstance(item, str) and item in groups:
        item = slice(*groups[item])
    elif isinstance(item, str) and (match := re.fullmatch(r"(\d+)(?::(\d+))?", item)):
        item = slice(int(match[1]), int(match[2] or int(match[1]) + 1))
    elif isinstance(item, int | np.integer) and not isinstance(item, bool) and -size <= item < size:
        item = slice(int(item) % size, int(item) % size + 1)
    if not isinstance(item, slice):
        return range(0)
    ends = [end for end in (item.start, item.stop) if end is not None]
    return range(size)[item] if all(-size <= end <= size for end in ends) else range(0)
