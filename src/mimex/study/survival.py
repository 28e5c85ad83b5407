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
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import CensoredData, ecdf

from mimex.study.groups import BASELINE, Group, comparable
from mimex.study.runs import Floats, Run

METRIC = "explore/first_reward"
"""Environment step (or frame) of the first reward above 0; not logged before there is one."""

MAX_EXACT = 50_000
"""Maximum number of assignments to enumerate: nine against nine runs of a task have 48,620."""

SAMPLES = 9_999
"""Assignments to sample otherwise; the standard error of a p-value of 5 % is then 0.2 %."""

TOLERANCE = 1e-9
"""Tolerance for equal statistics."""


class Durations(NamedTuple):
    """Steps to the first reward of some runs."""

    steps: Floats  # (runs,): the step of a run's first reward, or its last step if it is censored
    observed: NDArray[np.bool_]  # (runs,): whether the run received a reward


class LogRank(NamedTuple):
    """A log-rank test."""

    statistic: float  # in standard deviations, above 0 if the first method is earlier
    p: float  # two-sided


class FirstRewards(NamedTuple):
    """Summary of a method's steps to the first reward."""

    task: str | None  # None for all tasks combined
    method: str
    found: int  # runs with a reward
    runs: int
    median: float | None  # of the Kaplan-Meier curve; None if it was not reached
    p: float | None  # of the log-rank test against the baseline, if there is one


def durations_of(runs: Sequence[Run], metric: str = METRIC) -> Durations:
    """Returns the steps to the first reward, or another event, of all runs with metrics."""
    curves = [(run.curve(metric)[1], run.columns["step"]) for run in runs]
    ends = [(*first[:1], steps[-1])[0] for first, steps in curves if len(steps)]
    observed = [len(first) > 0 for first, steps in curves if len(steps)]
    return Durations(np.array(ends, float), np.array(observed, bool))


def survival_curve(durations: Durations) -> tuple[Floats, Floats]:
    """Returns the Kaplan-Meier estimate of the fraction of runs without a reward.

    Steps and fractions have the shape ``(points,)``, with a point at 0 and at every step at which a
    run received its first reward or ended. A fraction holds until the next step.
    """
    steps, observed = durations.steps, durations.observed
    curve = ecdf(CensoredData(uncensored=steps[observed], right=steps[~observed])).sf
    return np.append(0.0, curve.quantiles), np.append(1.0, curve.probabilities)


def median(durations: Durations) -> float | None:
    """Returns the step by which half of the runs had a reward; None if it was not reached."""
    steps, fractions = survival_curve(durations)
    reached = steps[fractions <= 0.5 + TOLERANCE]
    return float(reached[0]) if len(reached) else None


def log_rank(
    ours: Mapping[str, Durations], theirs: Mapping[str, Durations], *, seed: int = 0
) -> LogRank:
    """Tests whether two methods differ in the steps to the first reward, stratified by task.

    Args:
        ours: Steps of the first method by task.
        theirs: Steps of the second method on the same tasks; the number of seeds may differ.
        seed: Random seed of sampled assignments.
    """
    if ours.keys() != theirs.keys():
        raise ValueError(
            f"ours has the tasks {sorted(ours)}, theirs has {sorted(theirs)}; expected the same."
        )
    # By task: the runs of both methods, and 1 for each run of ours. Tasks without any reward have
    # no influence.
    pairs = [(ours[task], pooled([ours[task], theirs[task]])) for task in sorted(ours)]
    strata = [
        (both, (np.arange(len(both.steps)) < len(first.steps)).astype(float))
        for first, both in pairs
        if both.observed.any()
    ]
    excess = sum((_excess(runs[None], both) for both, runs in strata), np.zeros((2, 1)))
    statistic = float(_standardized(excess)[0])
    if statistic < -TOLERANCE:  # symmetric in the two methods
        swapped = log_rank(theirs, ours, seed=seed)
        return LogRank(-swapped.statistic, swapped.p)
    if math.prod(math.comb(len(runs), int(runs.sum())) for _, runs in strata) <= MAX_EXACT:
        permuted = np.zeros((2, 1))
        for both, runs in strata:  # all combinations of the tasks' assignments
            one = _excess(_all_assignments(int(runs.sum()), len(runs)), both)
            permuted = (permuted[:, :, None] + one[:, None]).reshape(2, -1)
    else:
        generator = np.random.default_rng(seed)
        permuted = np.zeros((2, SAMPLES))
        for both, runs in strata:
            permuted += _excess(generator.permuted(np.tile(runs, (SAMPLES, 1)), axis=1), both)
        permuted = np.concatenate([excess, permuted], axis=1)
    as_extreme = np.abs(_standardized(permuted)) >= abs(statistic) - TOLERANCE
    return LogRank(statistic, float(as_extreme.mean()))


def first_rewards(groups: Sequence[Group], baseline: str = BASELINE) -> list[FirstRewards]:
    """Returns one row per group, and one per method over the tasks that all methods share.

    There are no rows if no run received a reward.

    Args:
        groups: Runs by task and method; those without metrics are skipped.
        baseline: The method that the others are compared with.
    """
    methods: dict[str, dict[str, Durations]] = {}
    for group in groups:
        durations = durations_of(group.runs)
        if len(durations.steps):
            methods.setdefault(group.label, {})[group.task] = durations
    if not any(x.observed.any() for by_task in methods.values() for x in by_task.values()):
        return []

    def row(task: str | None, method: str, tasks: Sequence[str]) -> FirstRewards:
        by_task = {name: methods[method][name] for name in tasks}
        all_runs = pooled(list(by_task.values()))
        found, runs = int(all_runs.observed.sum()), len(all_runs.observed)
        p = None
        if method != baseline and set(tasks) <= methods.get(baseline, {}).keys():
            p = log_rank(by_task, {name: methods[baseline][name] for name in tasks}).p
        return FirstRewards(task, method, found, runs, median(all_runs), p)

    tasks = dict.fromkeys(group.task for group in groups)
    rows = [row(task, name, [task]) for task in tasks for name in methods if task in methods[name]]
    shared = list(next(iter(comparable(methods).values()), {}))
    return rows + [row(None, name, shared) for name in methods if len(shared) > 1]


def pooled(parts: Sequence[Durations]) -> Durations:
    """Concatenates the runs of several groups."""
    steps = np.concatenate([part.steps for part in parts])
    return Durations(steps, np.concatenate([part.observed for part in parts]))


def _excess(assignments: Floats, durations: Durations) -> Floats:
    """Returns observed minus expected first rewards, and their variance ``(2, assignments)``.

    Args:
        assignments: 1 for each run that is assigned to the first method ``(assignments, runs)``.
        durations: Steps of the runs of one task.
    """
    times = np.unique(durations.steps[durations.observed])
    at_risk = (durations.steps[:, None] >= times).astype(float)  # (runs, times)
    events = ((durations.steps[:, None] == times) & durations.observed[:, None]).astype(float)
    total, count = at_risk.sum(0), events.sum(0)  # (times,)
    first = assignments @ at_risk / total  # (assignments, times): first method's part of the runs
    excess = assignments @ events.sum(1) - first @ count
    variance = (first * (1 - first)) @ (count * (total - count) / np.maximum(total - 1, 1))
    return np.stack([excess, variance])


def _standardized(excess: Floats) -> Floats:
    """Returns the excess over its standard deviation ``(assignments,)``; 0 without variance."""
    varies = excess[1] > TOLERANCE
    return np.where(varies, excess[0] / np.sqrt(np.where(varies, excess[1], 1.0)), 0.0)


def _all_assignments(count: int, runs: int) -> Floats:
    """Returns all assignments of some runs to the first method ``(assignments, runs)``."""
    ways = math.comb(runs, count)
    chosen = np.array(list(combinations(range(runs), count)), np.int64).reshape(ways, count)
    assignments = np.zeros((ways, runs))
    np.put_along_axis(assignments, chosen, 1.0, axis=1)
    return assignments
