"""Stratified bootstrap intervals that hold for a handful of runs.

Runs are drawn anew within each task, and the middle 95 % of what the aggregate comes to is taken.
For few runs that alone is too narrow, for two reasons that are both corrected here: the spread of
n numbers about their own mean is too small by (n - 1) / n, so n - 1 runs are drawn of n (Rao and
Wu, 1988); and it is itself known badly, so the interval is stretched about the estimate by as
much as Student's t distribution is wider than the normal one. How often the truth is inside was
measured: benchmarks/results/intervals.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from mimex.envs.nearest import choose

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
Strata = Mapping[str, Numbers]
"""From a task's name to the scores, or curves, of its runs ``(seeds, points)``."""

LEVEL = 0.95
DRAWS = 2000
"""Of runs; the ends of an interval then move by about 2 % of its width with the seed."""

AT_ONCE = 4_000_000
"""Numbers drawn at once, to bound the memory (32 MB an array)."""


@dataclass(frozen=True, eq=False)
class Band:
    """A statistic and its interval at every point: ``(points,)`` each."""

    value: Numbers
    low: Numbers
    high: Numbers

    def within(self, low: float, high: float) -> Band:
        """The same, where nothing can be below or above some bounds."""
        return Band(self.value, np.maximum(self.low, low), np.minimum(self.high, high))


def pool(strata: Strata) -> tuple[Numbers, Numbers]:
    """All runs ``(N, points)``, and their weights ``(N,)``: tasks weigh the same, 1 in all."""
    if not strata:
        raise ValueError("there are no tasks to take scores of; expected at least one.")
    for task, values in strata.items():
        if not len(values) or not np.isfinite(values).all():
            raise ValueError(
                f"task {task!r} has no runs, or scores that are not finite; leave these out."
            )
    return np.concatenate(list(strata.values())), _weights([len(x) for x in strata.values()])


def require_several(strata: Strata) -> None:
    """Refuses an interval where a task has one run only."""
    for task, values in strata.items():
        if len(values) < 2:
            raise ValueError(
                f"task {task!r} has {len(values)} run, and one run tells nothing about how runs "
                "differ: an interval needs two or more seeds of every task."
            )


def bootstrap(strata: Strata, statistic: str, seed: int) -> Band:
    """A statistic ("iqm" or "mean") over tasks and runs, and its interval, at every point."""
    once, drawn = FUNCTIONS[choose("statistic", statistic, tuple(FUNCTIONS))]
    values, weights = pool(strata)
    require_several(strata)
    sizes = [len(x) for x in strata.values()]
    picks = _draw_picks(sizes, np.random.default_rng(seed))  # (draws, sum of n - 1)
    draws = drawn(values, _weights([size - 1 for size in sizes]), picks)
    return _stretched(once(values, weights), draws, list(strata.values()))


def _draw_picks(sizes: Sequence[int], generator: np.random.Generator) -> Places:
    """For every draw, rows of the pooled runs: n - 1 of each task's n, with replacement."""
    starts = np.cumsum([0, *sizes[:-1]])
    picks = [
        start + generator.integers(size, size=(DRAWS, size - 1))
        for start, size in zip(starts, sizes, strict=True)
    ]
    return np.concatenate(picks, axis=1)


def _stretched(estimate: Numbers, draws: Numbers, strata: Sequence[Numbers]) -> Band:
    """The percentile interval of draws ``(draws, points)``, stretched as few runs need it."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    stretch = stdtrit(_freedom(strata), tail) / ndtri(tail)
    below, above = np.maximum(estimate - low, 0.0), np.maximum(high - estimate, 0.0)
    return Band(estimate, estimate - stretch * below, estimate + stretch * above)


def weighted_mean(values: Numbers, weights: Numbers) -> Numbers:
    """Over the runs ``(..., N, points)``."""
    mean: Numbers = np.einsum("...np,n->...p", values, weights)
    return mean


def interquartile_mean(values: Numbers, weights: Numbers) -> Numbers:
    """The mean of the middle half of the weight ``(..., N, points)``."""
    if np.ptp(weights) == 0:  # nearly always, and much faster
        return weighted_mean(np.sort(values, axis=-2), _middle(weights[:, None])[:, 0])
    order = np.argsort(values, axis=-2, kind="stable")
    ranked = np.take_along_axis(values, order, axis=-2)
    middle: Numbers = (_middle(weights[order]) * ranked).sum(-2)
    return middle


def _middle(weights: Numbers) -> Numbers:
    """How much of each ranked run's weight lies between the quartiles, 1 in all."""
    reached = np.clip(np.cumsum(weights, axis=-2), 0.25, 0.75)
    return np.diff(reached, axis=-2, prepend=0.25) / 0.5


def _drawn_means(values: Numbers, weights: Numbers, picks: Places) -> Numbers:
    """The weighted mean of every draw ``(draws, points)``: what each run weighs in it, times it."""
    cells = np.arange(len(picks))[:, None] * len(values) + picks
    each = np.broadcast_to(weights, picks.shape)
    shares = np.bincount(cells.ravel(), each.ravel(), minlength=len(picks) * len(values))
    return shares.reshape(len(picks), len(values)) @ values


def _drawn_interquartile_means(values: Numbers, weights: Numbers, picks: Places) -> Numbers:
    """The interquartile mean of every draw ``(draws, points)``, some points at a time."""
    at_once = max(1, AT_ONCE // picks.size)
    parts = [values[:, first : first + at_once] for first in range(0, values.shape[1], at_once)]
    return np.concatenate([interquartile_mean(part[picks], weights) for part in parts], axis=1)


FUNCTIONS = {
    "iqm": (interquartile_mean, _drawn_interquartile_means),
    "mean": (weighted_mean, _drawn_means),
}


def _weights(sizes: Sequence[int]) -> Numbers:
    """What each run weighs, if every task weighs the same."""
    return np.concatenate([np.full(size, 1 / size / len(sizes)) for size in sizes])


def _freedom(strata: Sequence[Numbers]) -> Numbers:
    """Degrees of freedom of the sum of the strata's variances, at every point.

    By Welch and Satterthwaite: n - 1 for one task, up to all tasks' n - 1 together.
    """
    parts = np.array([x.var(axis=0, ddof=1) / len(x) for x in strata])  # (tasks, points)
    each = np.array([len(x) - 1 for x in strata], float)[:, None]
    total, below = parts.sum(0) ** 2, (parts**2 / each).sum(0)
    freedom: Numbers = np.full(total.shape, each.sum())
    np.divide(total, below, out=freedom, where=below > 0)
    return freedom
