"""How settings change over a run."""

from __future__ import annotations

import math


def cosine(start: float, done: float) -> float:
    """From ``start`` to 0 along half a cosine, where ``done`` is the share of the run behind us."""
    return start * 0.5 * (1 + math.cos(math.pi * min(max(done, 0.0), 1.0)))
