"""Learning curves of the report: the mean of a group's runs, its band, and the single runs.

To keep pages small, curves are thinned without a visible change and stored with 16 bits a value.
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
"""Metrics, or prefixes of their names, that are listed first."""

LEFT_OUT = ("step", "eval/success_low", "eval/success_high")
"""Columns without a curve."""

WITH_INTERVAL = ("eval/", "train/", "explore/")
"""Metrics whose band is the 95 % interval of the mean; for others it is the range of all runs."""

RUNS_SHOWN = ("eval/", "train/", "explore/", "bonus/")
"""Metrics with a curve for every run."""

VALUES = 2_400_000
"""Maximum number of values in all curves of a page, 6.4 MB of text."""

MOST_BUCKETS, FEWEST_BUCKETS = 250, 12
"""Limits on the number of buckets per curve; the first is about one per pixel of a panel."""

LEVELS = 65534
"""Quantization levels between the minimum and the maximum of an array."""

MISSING = 65535
"""Code of values that are not finite."""

DIGITS = 9
"""Significant digits of the minimum and the maximum."""


def metric_names(runs: Iterable[Run]) -> list[str]:
    """Returns all metrics that any run logged, the most important first."""
    names = dict.fromkeys(name for run in runs for name in run.columns if name not in LEFT_OUT)

    def rank(name: str) -> int:
        return next((i for i, start in enumerate(ORDER) if name.startswith(start)), len(ORDER))

    return sorted(names, key=lambda name: (rank(name), name))


def buckets_for(groups: Sequence[Group], metrics: Sequence[str]) -> int:
    """Returns the number of buckets per curve that keeps all curves within ``VALUES``."""
    shown = sum(name.startswith(RUNS_SHOWN) for name in metrics)
    runs = sum(len(group.runs) for group in groups)
    # A bucket has two points: step, mean and band of a group, step and value of a run.
    per_bucket = 2 * (4 * len(groups) * len(metrics) + 2 * runs * shown)
    return int(np.clip(VALUES // max(per_bucket, 1), FEWEST_BUCKETS, MOST_BUCKETS))


def group_curves(group: Group, metrics: Sequence[str], buckets: int) -> dict[str, Any]:
    """Returns the curves of a group by metric."""
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
            band = curve_band({group.task: values[:, kept]}, "mean", limits=bounds(metric))
            low, high = band.low, band.high
        curve |= {"low": packed(low), "high": packed(high)}
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
    """Returns the indices of points that preserve the look of a curve.

    Each of equally long buckets keeps its minimum and its maximum; if a bucket is no wider than a
    pixel, the drawn line does not change. The first and the last point are kept too.

    Args:
        values: ``(points,)``.
        buckets: Number of buckets.
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
    """Returns values quantized to 16 bits between their minimum and maximum, as base64."""
    x = np.asarray(values, float).ravel()
    known = np.isfinite(x)
    ends = (x[known].min(), x[known].max()) if known.any() else (0.0, 0.0)
    low, high = (float(f"{end:.{DIGITS}g}") for end in ends)  # shorter JSON
    share = (x - low) / ((high - low) or 1.0)
    whole = np.round(np.where(known, share, 0).clip(0, 1) * LEVELS)
    steps = np.where(known, whole, MISSING).astype("<u2")
    return {"low": low, "high": high, "data": base64.b64encode(steps.tobytes()).decode()}
