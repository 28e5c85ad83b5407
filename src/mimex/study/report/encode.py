"""Curves made small: fewer points that look the same, and 16 bits a number."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVELS = 65534
"""Steps between the least and the greatest number of an array: far below a pixel."""

MISSING = 65535
"""Stands for what is not finite, or so large that a difference might not be."""

LARGEST = 1e300

DIGITS = 9
"""Of the least and the greatest number."""


def thinned(values: ArrayLike, buckets: int) -> NDArray[np.int64]:
    """Which points of a curve to keep so that its picture stays the same.

    The curve is cut into equal stretches, of which each keeps its lowest and its highest point:
    where a stretch is no wider than a pixel, the pixels that a line covers do not change. The
    first and the last point are kept too.

    Args:
        values: ``(points,)``.
        buckets: Stretches; at most two points are kept of each.
    """
    y = np.asarray(values, float)
    if len(y) <= 2 * buckets:
        return np.arange(len(y))
    edges = np.linspace(0, len(y), buckets + 1).astype(np.int64)
    kept = {0, len(y) - 1}
    for first, end in pairwise(edges.tolist()):
        kept |= {first + int(y[first:end].argmin()), first + int(y[first:end].argmax())}
    return np.array(sorted(kept))


def packed(values: ArrayLike) -> dict[str, Any]:
    """Numbers as base64 of 16-bit steps from the least to the greatest of them."""
    x = np.asarray(values, float).ravel()
    known = np.abs(x) < LARGEST
    ends = (x[known].min(), x[known].max()) if known.any() else (0.0, 0.0)
    low, high = (float(f"{end:.{DIGITS}g}") for end in ends)  # a shorter text
    share = (x - low) / ((high - low) or 1.0)
    whole = np.round(np.where(known, share, 0).clip(0, 1) * LEVELS)
    steps = np.where(known, whole, MISSING).astype("<u2")
    return {"low": low, "high": high, "data": base64.b64encode(steps.tobytes()).decode()}


def unpacked(packed: dict[str, Any]) -> NDArray[np.float64]:
    """The numbers of ``packed``, as the page reads them."""
    steps = np.frombuffer(base64.b64decode(packed["data"]), "<u2")
    values = packed["low"] + steps / LEVELS * (packed["high"] - packed["low"])
    numbers: NDArray[np.float64] = np.where(steps == MISSING, np.nan, values)
    return numbers
