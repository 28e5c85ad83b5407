"""What the runs of a study allow to say: aggregates over tasks and seeds, with 95 % intervals.

Scores come as a mapping from tasks to the scores of their runs. Every task weighs the same,
however many seeds it has. How intervals are made: `mimex.study.bootstrap`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from mimex.study.bootstrap import (
    LEVEL,
    Band,
    Numbers,
    bootstrap,
    interquartile_mean,
    pool,
    require_several,
    weighted_mean,
)

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

Scores = Mapping[str, ArrayLike]
"""Scores of one method: from a task's name to the scores of its runs ``(seeds,)``."""

Statistic = Literal["iqm", "mean"]

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


def mean(scores: Scores) -> float:
    """The mean over tasks of the mean over each task's runs."""
    return float(weighted_mean(*pool(_columns(scores)))[0])


def iqm(scores: Scores) -> float:
    """The interquartile mean: the mean of what lies between the quarter worst and best.

    Runs weigh so that tasks weigh the same, and a run that a quartile falls into counts in part:
    of five runs the middle one counts whole and its neighbours for three quarters.
    """
    return float(interquartile_mean(*pool(_columns(scores)))[0])


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
    return _estimate(bootstrap(_columns(scores), statistic, seed))


def curve_band(
    curves: Mapping[str, ArrayLike], statistic: Statistic = "iqm", *, seed: int = 0
) -> Band:
    """The aggregate of learning curves with its interval, at every point.

    Args:
        curves: From a task's name to the curves of its runs ``(seeds, points)``; one task for
            the band of a single panel.
        statistic: "iqm" or "mean".
        seed: Of the bootstrap.

    Raises:
        ValueError: If a task has one run only.
    """
    strata = {task: np.asarray(values, float) for task, values in curves.items()}
    return bootstrap(strata, statistic, seed)


def performance_profile(scores: Scores, levels: ArrayLike, *, seed: int = 0) -> Band:
    """The share of runs whose score is above each level, with its interval.

    Args:
        scores: Scores of one method.
        levels: ``(points,)``.
        seed: Of the bootstrap.

    Raises:
        ValueError: If a task has one run only.
    """
    above = {task: x > np.asarray(levels, float) for task, x in _columns(scores).items()}
    strata = {task: x.astype(float) for task, x in above.items()}  # (seeds, points)
    return bootstrap(strata, "mean", seed).within(0.0, 1.0)


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
    ours, theirs = _columns(better), _columns(worse)
    for side in (ours, theirs):
        pool(side)  # refuses what is not finite
        require_several(side)
    chances = np.linspace(0, 1, CHANCES)
    variance = np.zeros(CHANCES)
    share = 0.0
    for task, x in ours.items():
        y = theirs[task][:, 0]
        wins = (x > y) + 0.5 * (x == y)  # (seeds of better, of worse)
        share += float(wins.mean()) / len(ours)
        # Pairs of runs are not independent: many share their run of the other method, or ours.
        shared = (len(x) - 1) * (1 - chances) / (2 - chances) + (len(y) - 1) * chances / (
            1 + chances
        )
        variance += chances * (1 - chances) * (1 + shared) / wins.size / len(ours) ** 2
    reach = ndtri((1 + LEVEL) / 2) * np.sqrt(variance)
    possible = chances[np.abs(chances - share) <= reach]
    return Estimate(share, float(min([share, *possible])), float(max([share, *possible])))


def _columns(scores: Scores) -> dict[str, Numbers]:
    """Scores by task as ``(seeds, 1)``."""
    return {task: np.asarray(values, float).reshape(-1, 1) for task, values in scores.items()}


def _estimate(band: Band) -> Estimate:
    return Estimate(float(band.value[0]), float(band.low[0]), float(band.high[0]))
