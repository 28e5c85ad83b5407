"""What a Gymnasium space says about its values."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces


def all_discrete(space: spaces.Space[Any]) -> bool:
    """Whether values are discrete throughout, and so one-hot codes once they are flattened."""
    if isinstance(space, spaces.Dict):
        return all(all_discrete(part) for part in space.spaces.values())
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
