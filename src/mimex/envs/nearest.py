"""Name lookup with suggestions."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any


def choose(argument: str, value: Any, allowed: Sequence[str]) -> str:
    """Return the value if it is allowed, else raise ValueError that suggests the closest name."""
    if isinstance(value, str) and value in allowed:
        return value
    by_lower = {name.lower(): name for name in allowed}
    close = get_close_matches(str(value).lower(), by_lower, n=1, cutoff=0.5)
    hint = f"; did you mean {by_lower[close[0]]!r}?" if close else ""
    raise ValueError(f"{argument} is {value!r}, but must be one of {', '.join(allowed)}{hint}")
