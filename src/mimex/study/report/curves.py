"""Learning curves for the page: the mean of a group's runs, its band, and the runs themselves.

They are made small: fewer points that look the same, and 16 bits a number.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mimex.study.groups import Group, bounds, common_grid, curves
from mimex.study.runs import Run
from mimex.study.statistics import curve_band

ORDER = (
    "eval/success",
    "eval/return",
    "train/success",
    "train/return",
    "train/",
    "explore/",
    "bonus/",
)
"""Metrics, or beginnings of their names, that are offered first."""

LEFT_OUT = ("step", "eval/success_low", "eval/success_high")
"""Columns that are no curve: the interval of a single evaluation is told by its runs' band."""

WITH_INTERVAL = ("eval/", "train/", "explore/")
"""Metrics whose band is the 95 % interval of the mean; that of others spans all runs."""

RUNS_SHOWN = ("eval/", "train/", "explore/", "bonus/")
"""Metrics of which every run's own curve is kept."""

NUMBERS = 2_400_000
"""Numbers in all curves of a page: 6.4 MB of text."""

MOST_BUCKETS, FEWEST_BUCKETS = 250, 12
"""Stretches that a curve is thinned to: the first is one for each pixel or two of a panel."""

LEVELS = 65534
"""Steps between the least and the greatest number of an array: far below a pixel."""

MISSING = 65535
"""Stands for what is not finite, or so large that a difference might not be."""

LARGEST = 1e300

DIGITS = 9
"""Of the least and the greatest number."""


def metric_names(runs: Iterable[Run]) -> list[str]:
    """All metrics that any run reported, the most asked for first."""
    names = dict.fromkeys(name for run in runs for name in run.columns if name not in LEFT_OUT)

    def place(name: str) -> int:
        return next((i for i, start in enumerate(ORDER) if name.startswith(start)), len(ORDER))

    return sorted(names, key=lambda name: (place(name), name))


def buckets_for(groups: Sequence[Group], metrics: Sequence[str]) -> int:
    """How fine curves may be so that all of them together stay within ``NUMBERS``."""
    shown = sum(name.startswith(RUNS_SHOWN) for name in metrics)
    runs = sum(len(group.runs) for group in groups)
    # A stretch keeps two points: of a group the step, mean and band, of a run the step and value.
    per_bucket = 2 * (4 * len(groups) * len(metrics) + 2 * runs * shown)
    return int(np.clip(NUMBERS // max(per_bucket, 1), FEWEST_BUCKETS, MOST_BUCKETS))


def group_curves(group: Group, metrics: Sequence[str], buckets: int) -> dict[str, Any]:
    """The curves of a group, by metric."""
    drawn = {metric: _curve(group, metric, buckets) for metric in metrics}
    return {metric: curve for metric, curve in drawn.items() if curve is not None}


def _curve(group: Group, metric: str, buckets: int) -> dict[str, Any] | None:
    grid = common_grid(group.runs, metric)
    if len(grid) == 0:
        return None
    values = curves(group, metric, grid)  # (runs, points)
    mean = values.mean(axis=0)
    kept = thinned(mean, buckets)
    curve: dict[str, Any] = {"x": packed(grid[kept]), "mean": packed(mean[kept])}
    if len(values) > 1:
        low, high = values[:, kept].min(axis=0), values[:, kept].max(axis=0)
        if metric.startswith(WITH_INTERVAL):
            band = curve_band({group.task: values[:, kept]}, "mean")
            low, high = band.low, band.high
        least, most = bounds(metric)
        curve |= {"low": packed(np.maximum(low, least)), "high": packed(np.minimum(high, most))}
        if metric.startswith(RUNS_SHOWN):
            curve["runs"] = [
                _run_curve(run, metric, buckets) for run in group.runs if metric in run.columns
            ]
    return curve


def _run_curve(run: Run, metric: str, buckets: int) -> dict[str, Any]:
    steps, values = run.curve(metric)
    kept = thinned(values, buckets)
    return {"seed": run.seed, "x": packed(steps[kept]), "y": packed(values[kept])}


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
