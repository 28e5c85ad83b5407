"""What the runs of a study allow to say: aggregates over tasks and seeds, with 95 % intervals.

Scores come as a mapping from tasks to the scores of their runs. Every task weighs the same,
however many seeds it has.

Intervals are a stratified bootstrap that holds for a handful of runs: runs are drawn anew within
each task, and the middle 95 % of what the aggregate comes to is taken. For few runs that alone is
too narrow, for two reasons that are both corrected here: the spread of n numbers about their own
mean is too small by (n - 1) / n, so n - 1 runs are drawn of n (Rao and Wu, 1988); and it is itself
known badly, so the interval is widened about the estimate by as much as Student's t distribution
is wider than the normal one. How often the truth is inside was measured:
benchmarks/results/intervals.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from mimex.envs.nearest import choose

__all__ = [
    "Estimate",
    "Band",
    "mean",
    "iqm",
    "interval",
    "curve_band",
    "final_value",
    "area_under_curve",
    "performance_profile",
    "probability_of_improvement",
]

Numbers = NDArray[np.float64]
Scores = Mapping[str, ArrayLike]
"""Scores of one method: from a task's name to the scores of its runs ``(seeds,)``."""

Strata = Mapping[str, Numbers]
"""The same as columns, or curves: ``(seeds, points)``."""

Statistic = Literal["iqm", "mean"]

LEVEL = 0.95
DRAWS = 2000
"""Of runs; the ends of an interval then move by about 2 % of its width with the seed."""

FINAL_SHARE = 0.1
"""Of a run's steps: long enough to smooth single evaluations, short enough to be the end."""

CHANCES = 2001
"""Probabilities of improvement that are tried for its interval: to a twentieth of a per cent."""


@dataclass(frozen=True)
class Estimate:
    """A number, and the interval that the truth lies in with 95 % confidence."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Band:
    """A statistic and its interval at every point: ``(points,)`` each."""

    value: Numbers
    low: Numbers
    high: Numbers


def mean(scores: Scores) -> float:
    """The mean over tasks of the mean over each task's runs."""
    return float(_aggregate(_strata(scores), "mean")[0])


def iqm(scores: Scores) -> float:
    """The interquartile mean: the mean of what lies between the quarter worst and best.

    Runs weigh so that tasks weigh the same, and a run that a quartile falls into counts in part:
    of five runs the middle one counts whole and its neighbours for three quarters.
    """
    return float(_aggregate(_strata(scores), "iqm")[0])


def area_under_curve(steps: ArrayLike, values: ArrayLike) -> float:
    """The area under a learning curve over the width of its steps: the mean height."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    if not len(x) or (np.diff(x) <= 0).any():
        raise ValueError("steps is empty or does not increase; an area needs steps that do.")
    return float(np.trapezoid(y, x) / (x[-1] - x[0])) if len(x) > 1 else float(y[0])


def final_value(steps: ArrayLike, values: ArrayLike) -> float:
    """What a learning curve came to: the mean over the last tenth of its steps."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    if not len(x):
        raise ValueError("steps is empty; a final value needs one point or more.")
    return float(y[x >= (1 - FINAL_SHARE) * x[-1]].mean())


def interval(scores: Scores, statistic: Statistic = "iqm", *, seed: int = 0) -> Estimate:
    """An aggregate over tasks and runs with its interval.

    Args:
        scores: Scores of one method.
        statistic: "iqm" or "mean".
        seed: Of the bootstrap.

    Raises:
        ValueError: If a task has one run only, which tells nothing about the spread of runs.
    """
    band = _bootstrap(_strata(scores, several=True), statistic, seed)
    return Estimate(float(band.value[0]), float(band.low[0]), float(band.high[0]))


def curve_band(curves: Scores, statistic: Statistic = "iqm", *, seed: int = 0) -> Band:
    """The aggregate of learning curves with its interval, at every point.

    Args:
        curves: From a task's name to the curves of its runs ``(seeds, points)``; one task for
            the band of a single panel.
        statistic: "iqm" or "mean".
        seed: Of the bootstrap.

    Raises:
        ValueError: If a task has one run only.
    """
    return _bootstrap(_strata(curves, several=True), statistic, seed)


def performance_profile(scores: Scores, levels: ArrayLike, *, seed: int = 0) -> Band:
    """The share of runs whose score is above each level, with its interval.

    Args:
        scores: Scores of one method.
        levels: ``(points,)``.
        seed: Of the bootstrap.

    Raises:
        ValueError: If a task has one run only.
    """
    strata = _strata(scores, several=True)
    above = {task: (x > np.asarray(levels, float)).astype(float) for task, x in strata.items()}
    band = _bootstrap(above, "mean", seed)
    return Band(band.value, np.maximum(band.low, 0.0), np.minimum(band.high, 1.0))


def probability_of_improvement(better: Scores, worse: Scores) -> Estimate:
    """How probably a run of one method scores higher than one of another, ties counting half.

    The mean over tasks; 0.5 says that there is no difference. The interval is no bootstrap, which
    would have no width where all runs of one method beat all of the other: it holds all
    probabilities whose own spread explains what was seen (Wilson, 1927), the spread of
    comparing all pairs being that of Hanley and McNeil (1982).

    Args:
        better: Scores of the method that is asked about.
        worse: Scores of the other method on the same tasks; seeds need not be as many.

    Raises:
        ValueError: If the tasks differ, or one has one run only.
    """
    if better.keys() != worse.keys():
        raise ValueError(
            f"better has the tasks {sorted(better)}, worse has {sorted(worse)}; expected the same."
        )
    ours, theirs = _strata(better, several=True), _strata(worse, several=True)
    chances = np.linspace(0, 1, CHANCES)
    variance = np.zeros(CHANCES)
    share = 0.0
    for task, x in ours.items():
        y = theirs[task][:, 0]
        wins = (x > y) + 0.5 * (x == y)  # (seeds of better, of worse)
        share += float(wins.mean()) / len(ours)
        # Pairs of runs are not independent: many share their run of the other method, or ours.
        shared = (len(x) - 1) * (1 - chances) / (2 - chances)
        shared += (len(y) - 1) * chances / (1 + chances)
        variance += chances * (1 - chances) * (1 + shared) / wins.size / len(ours) ** 2
    reach = ndtri((1 + LEVEL) / 2) * np.sqrt(variance)
    possible = chances[np.abs(chances - share) <= reach]
    return Estimate(share, float(min([share, *possible])), float(max([share, *possible])))


def _strata(scores: Scores, *, several: bool = False) -> dict[str, Numbers]:
    """Scores by task as ``(seeds, points)``; refuses those that nothing can be said about."""
    if not scores:
        raise ValueError("there are no tasks to take scores of; expected at least one.")
    strata = {}
    for task, given in scores.items():
        values = np.asarray(given, float)
        if not len(values) or not np.isfinite(values).all():
            raise ValueError(
                f"task {task!r} has no runs, or scores that are not finite; leave these out."
            )
        if several and len(values) < 2:
            raise ValueError(
                f"task {task!r} has {len(values)} run, and one run tells nothing about how runs "
                "differ: an interval needs two or more seeds of every task."
            )
        strata[task] = values if values.ndim == 2 else values[:, None]
    return strata


def _aggregate(strata: Strata, statistic: str, weights: Numbers | None = None) -> Numbers:
    """A statistic over all runs at every point ``(..., points)``.

    Args:
        strata: Runs by task.
        statistic: "iqm" or "mean".
        weights: Of all runs, 1 in all ``(..., runs)``; by default tasks weigh the same.
    """
    choose("statistic", statistic, ("iqm", "mean"))
    values = np.concatenate(list(strata.values()))  # (runs, points)
    if weights is None:
        shares = [np.full(len(x), 1 / len(x) / len(strata)) for x in strata.values()]
        weights = np.concatenate(shares)
    if statistic == "mean":
        means: Numbers = weights @ values
        return means
    order = np.argsort(values, axis=0, kind="stable")
    columns = []
    for ranks, column in zip(order.T, values.T, strict=True):
        # How much of each ranked run's weight lies between the quartiles.
        reached = np.clip(np.cumsum(weights[..., ranks], axis=-1), 0.25, 0.75)
        middle = np.diff(reached, axis=-1, prepend=0.25) / 0.5
        columns.append(middle @ column[ranks])
    return np.stack(columns, axis=-1)


def _bootstrap(strata: Strata, statistic: str, seed: int) -> Band:
    """A statistic over tasks and runs, and its interval, at every point."""
    generator = np.random.default_rng(seed)
    # How often each run is drawn, n - 1 of each task's n with replacement, is what it weighs.
    drawn = [
        generator.multinomial(len(x) - 1, np.full(len(x), 1 / len(x)), size=DRAWS) / (len(x) - 1)
        for x in strata.values()
    ]
    weights = np.concatenate(drawn, axis=1) / len(strata)  # (draws, runs)
    estimate = _aggregate(strata, statistic)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(
        _aggregate(strata, statistic, weights), [tail, 1 - tail], axis=0, overwrite_input=True
    )
    wider = stdtrit(_degrees_of_freedom(strata), tail) / ndtri(tail)
    below, above = np.maximum(estimate - low, 0.0), np.maximum(high - estimate, 0.0)
    return Band(estimate, estimate - wider * below, estimate + wider * above)


def _degrees_of_freedom(strata: Strata) -> Numbers:
    """Of the sum of the strata's variances, at every point.

    By Welch and Satterthwaite: n - 1 for one task, up to all tasks' n - 1 together.
    """
    parts = np.array([x.var(axis=0, ddof=1) / len(x) for x in strata.values()])  # (tasks, points)
    each = np.array([len(x) - 1 for x in strata.values()], float)[:, None]
    total, below = parts.sum(0) ** 2, (parts**2 / each).sum(0)
    freedom: Numbers = np.full(total.shape, each.sum())
    np.divide(total, below, out=freedom, where=below > 0)
    return freedom
