"""Aggregates over tasks and seeds with 95 % intervals.

Scores are a mapping from tasks to the scores of their runs. All tasks have equal weight, whatever
their number of seeds.

Intervals come from a percentile bootstrap, stratified by task, with two corrections for few runs.
The variance of n resampled runs is too small by a factor of (n - 1) / n, so n - 1 runs are drawn
(Rao and Wu, 1988). And since the variance is itself estimated from few runs, the interval is
widened by the ratio of the quantiles of Student's t and the normal distribution. The coverage is
measured in benchmarks/results/intervals.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri, stdtrit

from mimex.envs.nearest import choose
from mimex.study.runs import Floats

Scores = Mapping[str, ArrayLike]
"""Scores of one method by task ``(seeds,)``."""

Strata = Mapping[str, Floats]
"""Scores or curves of one method by task ``(seeds, points)``."""

Statistic = Literal["iqm", "mean"]

UNLIMITED = (-np.inf, np.inf)
LEVEL = 0.95
DRAWS = 2000
"""Bootstrap samples; the limits then vary by about 2 % of the width with the random seed."""

FINAL_SHARE = 0.1
"""Fraction of a run's steps that its final score is averaged over."""

CANDIDATES = 2001
"""Candidate probabilities of improvement for its interval, a grid of 0.05 %."""


class Estimate(NamedTuple):
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float


class Band(NamedTuple):
    """A statistic with its interval at every point: ``(points,)`` each."""

    value: Floats
    low: Floats
    high: Floats


def mean(scores: Scores) -> float:
    """Returns the mean over tasks of the mean over each task's runs."""
    return float(_aggregate(_strata(scores), "mean")[0])


def iqm(scores: Scores) -> float:
    """Returns the interquartile mean: the mean of the middle half of all runs.

    Runs are weighted such that all tasks have equal weight. A run that a quartile falls into counts
    in part: of five runs the middle one has weight 1 and its neighbors 0.75.
    """
    return float(_aggregate(_strata(scores), "iqm")[0])


def area_under_curve(steps: ArrayLike, values: ArrayLike) -> float:
    """Returns the area under a learning curve divided by its range of steps: the mean height."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    if not len(x) or (np.diff(x) <= 0).any():
        raise ValueError("steps is empty or does not increase; an area needs increasing steps.")
    return float(np.trapezoid(y, x) / (x[-1] - x[0])) if len(x) > 1 else float(y[0])


def final_value(steps: ArrayLike, values: ArrayLike) -> float:
    """Returns the mean of a learning curve over the last tenth of its steps."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    if not len(x):
        raise ValueError("steps is empty; a final value needs one point or more.")
    return float(y[x >= (1 - FINAL_SHARE) * x[-1]].mean())


def interval(
    scores: Scores,
    statistic: Statistic = "iqm",
    *,
    limits: tuple[float, float] = UNLIMITED,
    seed: int = 0,
) -> Estimate:
    """Returns an aggregate over tasks and runs with its interval.

    Args:
        scores: Scores of one method; two or more of each task.
        statistic: "iqm" or "mean".
        limits: Lowest and highest possible score.
        seed: Random seed of the bootstrap.
    """
    band = _bootstrap(_strata(scores, several=True), statistic, limits, seed)
    return Estimate(*(float(values[0]) for values in band))


def curve_band(
    curves: Scores,
    statistic: Statistic = "iqm",
    *,
    limits: tuple[float, float] = UNLIMITED,
    seed: int = 0,
) -> Band:
    """Returns the aggregate of learning curves by task ``(seeds, points)``, as ``interval``."""
    return _bootstrap(_strata(curves, several=True), statistic, limits, seed)


def probability_of_improvement(better: Scores, worse: Scores) -> Estimate:
    """Returns the probability that a run of one method scores higher than a run of another.

    Ties count half, and the result is the mean over tasks; 0.5 means no difference. The interval is
    a score interval in the manner of Wilson (1927): it contains all probabilities that are
    compatible with the observed one, given the variance over pairs of Hanley and McNeil (1982). A
    bootstrap interval would have no width if all runs of one method beat all of the other.

    Args:
        better: Scores of the first method.
        worse: Scores of the second method on the same tasks; the number of seeds may differ.
    """
    if better.keys() != worse.keys():
        raise ValueError(
            f"better has the tasks {sorted(better)}, worse has {sorted(worse)}; expected the same."
        )
    ours, theirs = _strata(better, several=True), _strata(worse, several=True)
    candidates = np.linspace(0, 1, CANDIDATES)
    variance = np.zeros(CANDIDATES)
    share = 0.0
    for task, x in ours.items():
        y = theirs[task][:, 0]
        wins = (x > y) + 0.5 * (x == y)  # (seeds of better, of worse)
        share += float(wins.mean()) / len(ours)
        # Pairs that share a run are not independent.
        shared = (len(x) - 1) * (1 - candidates) / (2 - candidates)
        shared += (len(y) - 1) * candidates / (1 + candidates)
        variance += candidates * (1 - candidates) * (1 + shared) / wins.size / len(ours) ** 2
    reach = ndtri((1 + LEVEL) / 2) * np.sqrt(variance)
    possible = candidates[np.abs(candidates - share) <= reach]
    return Estimate(share, float(min([share, *possible])), float(max([share, *possible])))


def _strata(scores: Scores, *, several: bool = False) -> dict[str, Floats]:
    """Returns scores by task as ``(seeds, points)``.

    Raises:
        ValueError: If there are too few scores, or some are not finite.
    """
    if not scores:
        raise ValueError("there are no scores; expected those of at least one task.")
    strata = {}
    for task, given in scores.items():
        values = np.asarray(given, float)
        if not len(values) or not np.isfinite(values).all():
            raise ValueError(
                f"task {task!r} has no runs, or scores that are not finite; leave these out."
            )
        if several and len(values) < 2:
            raise ValueError(
                f"task {task!r} has {len(values)} run, but an interval needs two or more "
                "seeds of every task."
            )
        strata[task] = values if values.ndim == 2 else values[:, None]
    return strata


def _aggregate(strata: Strata, statistic: str, weights: Floats | None = None) -> Floats:
    """Returns a statistic over all runs at every point ``(..., points)``.

    Args:
        strata: Runs by task.
        statistic: "iqm" or "mean".
        weights: Weights of all runs ``(..., runs)`` with sum 1; equal for tasks by default.
    """
    choose("statistic", statistic, ("iqm", "mean"))
    values = np.concatenate(list(strata.values()))  # (runs, points)
    if weights is None:
        shares = [np.full(len(x), 1 / len(x) / len(strata)) for x in strata.values()]
        weights = np.concatenate(shares)
    if statistic == "mean":
        means: Floats = weights @ values
        return means
    order = np.argsort(values, axis=0, kind="stable")
    columns = []
    for ranks, column in zip(order.T, values.T, strict=True):
        # The part of each ranked run's weight between the quartiles.
        reached = np.clip(np.cumsum(weights[..., ranks], axis=-1), 0.25, 0.75)
        middle = np.diff(reached, axis=-1, prepend=0.25) / 0.5
        columns.append(middle @ column[ranks])
    return np.stack(columns, axis=-1)


def _bootstrap(strata: Strata, statistic: str, limits: tuple[float, float], seed: int) -> Band:
    """Returns a statistic over tasks and runs with its interval at every point."""
    generator = np.random.default_rng(seed)
    # A run's weight is how often it is drawn: n - 1 draws from the n runs of its task.
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
    band = estimate - wider * below, estimate + wider * above
    return Band(estimate, *np.clip(band, *limits))


def _degrees_of_freedom(strata: Strata) -> Floats:
    """Returns the degrees of freedom at every point, by Welch and Satterthwaite."""
    parts = np.array([x.var(axis=0, ddof=1) / len(x) for x in strata.values()])  # (tasks, points)
    each = np.array([len(x) - 1 for x in strata.values()], float)[:, None]
    total, below = parts.sum(0) ** 2, (parts**2 / each).sum(0)
    freedom: Floats = np.full(total.shape, each.sum())
    np.divide(total, below, out=freedom, where=below > 0)
    return freedom
