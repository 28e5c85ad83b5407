"""Survival analysis of the steps to the first reward.

A run without a reward is censored at its last step. Curves are Kaplan-Meier estimates (1958), and
methods are compared by the log-rank test (Mantel, 1966), stratified by task.

The p-value comes from a permutation test: runs are assigned to the two methods at random within
each task. All assignments are enumerated if they are few, and sampled otherwise. The statistic is
divided by its standard deviation in every assignment, which keeps the test valid for many runs if
the methods have different budgets (Neuhaus, 1993).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import CensoredData, ecdf

from mimex.study.groups import BASELINE, Group, comparable
from mimex.study.runs import Numbers, Run

METRIC = "explore/first_reward"
"""Environment step (or frame) of the first reward above 0; not logged before there is one."""

EXACT = 50_000
"""Maximum number of assignments to enumerate: nine against nine runs of a task have 48,620."""

DRAWS = 9_999
"""Assignments to sample otherwise; the standard error of a p-value of 5 % is then 0.2 %."""

ROUNDING = 1e-9
"""Tolerance for equal statistics."""


@dataclass(frozen=True, eq=False)
class Waits:
    """Steps to the first reward of some runs: ``(runs,)`` each.

    Attributes:
        steps: Step of a run's first reward, or its last step if it is censored.
        met: Whether the run received a reward.
    """

    steps: Numbers
    met: NDArray[np.bool_]


@dataclass(frozen=True)
class LogRank:
    """A log-rank test.

    Attributes:
        statistic: In standard deviations, above 0 if the first method is earlier; its square is the
            chi-square statistic.
        p: Two-sided p-value.
    """

    statistic: float
    p: float


@dataclass(frozen=True)
class FirstRewards:
    """Summary of a method's steps to the first reward.

    Attributes:
        task: The task, or None for all tasks combined.
        method: The method's name.
        found: Number of runs with a reward.
        runs: Number of runs.
        median: Median steps (Kaplan-Meier); None if it was not reached.
        p: p-value of the log-rank test against the baseline, if there is one.
    """

    task: str | None
    method: str
    found: int
    runs: int
    median: float | None
    p: float | None


def waits_of(runs: Sequence[Run], metric: str = METRIC) -> Waits:
    """Returns the steps to the first reward, or another event, of all runs with metrics."""
    curves = [(run.curve(metric)[1], run.columns["step"]) for run in runs]
    ends = [(*first[:1], steps[-1])[0] for first, steps in curves if len(steps)]
    met = [len(first) > 0 for first, steps in curves if len(steps)]
    return Waits(np.array(ends, float), np.array(met, bool))


def survival_curve(waits: Waits) -> tuple[Numbers, Numbers]:
    """Returns the Kaplan-Meier estimate of the fraction of runs without a reward.

    Steps and fractions have the shape ``(points,)``, with a point at 0 and at every step at which a
    run received its first reward or ended. A fraction holds until the next step.
    """
    data = CensoredData(uncensored=waits.steps[waits.met], right=waits.steps[~waits.met])
    curve = ecdf(data).sf
    return np.append(0.0, curve.quantiles), np.append(1.0, curve.probabilities)


def median(waits: Waits) -> float | None:
    """Returns the step by which half of the runs had a reward; None if it was not reached."""
    steps, shares = survival_curve(waits)
    reached = steps[shares <= 0.5 + ROUNDING]
    return float(reached[0]) if len(reached) else None


def log_rank(ours: Mapping[str, Waits], theirs: Mapping[str, Waits], *, seed: int = 0) -> LogRank:
    """Tests whether two methods differ in the steps to the first reward, stratified by task.

    Args:
        ours: Steps of the first method by task.
        theirs: Steps of the second method on the same tasks; the number of seeds may differ.
        seed: Random seed of sampled assignments.

    Raises:
        ValueError: If the tasks differ.
    """
    if ours.keys() != theirs.keys():
        raise ValueError(
            f"ours has the tasks {sorted(ours)}, theirs has {sorted(theirs)}; expected the same."
        )
    # Tasks without any reward have no influence.
    pairs = [(ours[task], theirs[task]) for task in sorted(ours)]
    strata = [(len(a.steps), both) for a, b in pairs if (both := pooled([a, b])).met.any()]
    assignments = [(np.arange(len(both.steps)) < count).astype(float) for count, both in strata]
    observed = np.zeros((2, 1))
    for assignment, (_, both) in zip(assignments, strata, strict=True):
        observed += _excess(assignment[None], both)
    statistic = float(_standardized(observed)[0])
    if statistic < -ROUNDING:  # symmetric in the two methods
        turned = log_rank(theirs, ours, seed=seed)
        return LogRank(-turned.statistic, turned.p)
    ways = math.prod(math.comb(len(both.steps), count) for count, both in strata)
    if ways <= EXACT:
        parts = [_excess(_all_assignments(count, len(both.steps)), both) for count, both in strata]
        all_excess = reduce(_sums_of_pairs, parts, np.zeros((2, 1)))
    else:
        generator = np.random.default_rng(seed)
        drawn = np.zeros((2, DRAWS))
        for assignment, (_, both) in zip(assignments, strata, strict=True):
            drawn += _excess(generator.permuted(np.tile(assignment, (DRAWS, 1)), axis=1), both)
        all_excess = np.concatenate(
            [observed, drawn], axis=1
        )  # the observed assignment is one of them
    as_extreme = np.abs(_standardized(all_excess)) >= abs(statistic) - ROUNDING
    return LogRank(statistic, float(as_extreme.mean()))


def first_rewards(groups: Sequence[Group], baseline: str = BASELINE) -> list[FirstRewards]:
    """Returns one row per group, and one per method over the tasks that all methods share.

    There are no rows if no run received a reward.

    Args:
        groups: Runs by task and method; those without metrics are skipped.
        baseline: The method that the others are compared with.
    """
    methods: dict[str, dict[str, Waits]] = {}
    for group in groups:
        waits = waits_of(group.runs)
        if len(waits.steps):
            methods.setdefault(group.label, {})[group.task] = waits
    if not any(waits.met.any() for by_task in methods.values() for waits in by_task.values()):
        return []

    def row(task: str | None, method: str, tasks: Sequence[str]) -> FirstRewards:
        by_task = {name: methods[method][name] for name in tasks}
        waits = pooled(list(by_task.values()))
        p = None
        if method != baseline and set(tasks) <= methods.get(baseline, {}).keys():
            p = log_rank(by_task, {name: methods[baseline][name] for name in tasks}).p
        return FirstRewards(task, method, int(waits.met.sum()), len(waits.met), median(waits), p)

    every = dict.fromkeys(group.task for group in groups)
    rows = [row(task, name, [task]) for task in every for name in methods if task in methods[name]]
    shared = list(next(iter(comparable(methods).values()), {}))
    return rows + [row(None, name, shared) for name in methods if len(shared) > 1]


def pooled(waits: Sequence[Waits]) -> Waits:
    """Concatenates several groups of runs."""
    return Waits(np.concatenate([x.steps for x in waits]), np.concatenate([x.met for x in waits]))


def _excess(assignments: Numbers, waits: Waits) -> Numbers:
    """Returns observed minus expected first rewards, and their variance ``(2, assignments)``.

    Args:
        assignments: 1 for each run that is assigned to the first method ``(assignments, runs)``.
        waits: Steps of the runs of one task.
    """
    moments = np.unique(waits.steps[waits.met])
    waiting = (waits.steps[:, None] >= moments).astype(float)  # (runs, moments)
    meeting = ((waits.steps[:, None] == moments) & waits.met[:, None]).astype(float)
    there, met = waiting.sum(0), meeting.sum(0)  # (moments,)
    share = (
        assignments @ waiting / there
    )  # (assignments, moments), of the first method among runs at risk
    excess = assignments @ meeting.sum(1) - share @ met
    variance = (share * (1 - share)) @ (met * (there - met) / np.maximum(there - 1, 1))
    return np.stack([excess, variance])


def _standardized(excess: Numbers) -> Numbers:
    """Returns the excess over its standard deviation ``(assignments,)``; 0 without variance."""
    by_chance = excess[1] > ROUNDING
    return np.where(by_chance, excess[0] / np.sqrt(np.where(by_chance, excess[1], 1.0)), 0.0)


def _all_assignments(count: int, runs: int) -> Numbers:
    """Returns all assignments of some runs to the first method ``(assignments, runs)``."""
    ways = math.comb(runs, count)
    chosen = np.array(list(combinations(range(runs), count)), np.int64).reshape(ways, count)
    assignments = np.zeros((ways, runs))
    np.put_along_axis(assignments, chosen, 1.0, axis=1)
    return assignments


def _sums_of_pairs(some: Numbers, others: Numbers) -> Numbers:
    """Returns the sums of all pairs: ``(2, n)`` and ``(2, m)`` become ``(2, n * m)``."""
    return (some[:, :, None] + others[:, None]).reshape(2, -1)
