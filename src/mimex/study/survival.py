"""How long runs wait for their first reward, where some never meet one.

A run that met no reward is not left out, and no number is made up for it: it counts as one that
waited at least until its last step (it is censored there). Curves are those of Kaplan and Meier
(1958), methods are compared by the log-rank test (Mantel, 1966), in strata that are the tasks.

The test's p-value is no approximation for many runs: it is the share of all ways to deal the runs
of each task out to the two methods that part them as far as, or further than, what was seen. All
ways are gone through where they are few, and drawn where they are many. The statistic is
measured by its own deviation in every deal, which keeps the test right, as runs get more,
where one method's runs are shorter than the other's, too (Neuhaus, 1993).
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
"""The environment step, or frame, of the first reward above 0; not reported before there is one."""

EXACT = 50_000
"""Deals that are all gone through: nine against nine runs of a task have 48,620, three against
three of three tasks 8,000."""

DRAWS = 9_999
"""Deals that are drawn where there are more: a p-value of 5 % is then known to 0.2 %."""

ROUNDING = 1e-9
"""Statistics that differ by less are equal."""


@dataclass(frozen=True, eq=False)
class Waits:
    """How long some runs waited for their first reward: ``(runs,)`` each.

    Attributes:
        steps: The step of a run's first reward; its last step, if it met none.
        met: Whether it met one.
    """

    steps: Numbers
    met: NDArray[np.bool_]


@dataclass(frozen=True)
class LogRank:
    """A log-rank test.

    Attributes:
        statistic: In standard deviations, above 0 where the first method is ahead; its square is
            the chi-square of textbooks.
        p: Two-sided.
    """

    statistic: float
    p: float


@dataclass(frozen=True)
class FirstRewards:
    """What is told of a method's first rewards.

    Attributes:
        task: None for all tasks together.
        method: The method's name.
        found: Runs that met a reward.
        runs: All of them.
        median: The step by which half of the runs had met one; None if it was not reached.
        p: Of the log-rank test against the baseline, if there is one.
    """

    task: str | None
    method: str
    found: int
    runs: int
    median: float | None
    p: float | None


def waits_of(runs: Sequence[Run], metric: str = METRIC) -> Waits:
    """The waits of all runs that have reported anything yet, for a reward or something else."""
    told = [(run.curve(metric)[1], run.columns["step"]) for run in runs]
    ends = [(*first[:1], steps[-1])[0] for first, steps in told if len(steps)]
    met = [len(first) > 0 for first, steps in told if len(steps)]
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
    """The step by which half of the runs had met a reward; None if that was not reached."""
    steps, shares = survival_curve(waits)
    reached = steps[shares <= 0.5 + ROUNDING]
    return float(reached[0]) if len(reached) else None


def log_rank(ours: Mapping[str, Waits], theirs: Mapping[str, Waits], *, seed: int = 0) -> LogRank:
    """Whether one method meets rewards earlier than another, runs compared within each task.

    Args:
        ours: Waits of the method that is asked about, by task.
        theirs: Waits of the other on the same tasks; seeds need not be as many.
        seed: Of the deals that are drawn.

    Raises:
        ValueError: If the tasks differ.
    """
    if ours.keys() != theirs.keys():
        raise ValueError(
            f"ours has the tasks {sorted(ours)}, theirs has {sorted(theirs)}; expected the same."
        )
    # Tasks on which nobody met a reward say nothing, however they are dealt.
    pairs = [(ours[task], theirs[task]) for task in sorted(ours)]
    strata = [(len(a.steps), both) for a, b in pairs if (both := pooled([a, b])).met.any()]
    deals = [(np.arange(len(both.steps)) < count).astype(float) for count, both in strata]
    seen = np.zeros((2, 1))
    for deal, (_, both) in zip(deals, strata, strict=True):
        seen += _excess(deal[None], both)
    statistic = float(_standardised(seen)[0])
    if statistic < -ROUNDING:  # the same deals, whichever of the two is asked about
        turned = log_rank(theirs, ours, seed=seed)
        return LogRank(-turned.statistic, turned.p)
    ways = math.prod(math.comb(len(both.steps), count) for count, both in strata)
    if ways <= EXACT:
        parts = [_excess(_all_deals(count, len(both.steps)), both) for count, both in strata]
        dealt = reduce(_each_with_each, parts, np.zeros((2, 1)))
    else:
        generator = np.random.default_rng(seed)
        drawn = np.zeros((2, DRAWS))
        for deal, (_, both) in zip(deals, strata, strict=True):
            drawn += _excess(generator.permuted(np.tile(deal, (DRAWS, 1)), axis=1), both)
        dealt = np.concatenate([seen, drawn], axis=1)  # what was seen is one of the deals
    as_far = np.abs(_standardised(dealt)) >= abs(statistic) - ROUNDING
    return LogRank(statistic, float(as_far.mean()))


def first_rewards(groups: Sequence[Group], baseline: str = BASELINE) -> list[FirstRewards]:
    """One row a group, then one a method over the tasks that all methods have, if several.

    No rows where no run met a reward.

    Args:
        groups: Runs by task and method; those that have reported nothing yet are left out.
        baseline: The method that the others are compared with, where it is there.
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
    """The waits of several groups of runs, one after the other."""
    return Waits(np.concatenate([x.steps for x in waits]), np.concatenate([x.met for x in waits]))


def _excess(deals: Numbers, waits: Waits) -> Numbers:
    """Rewards met beyond those expected, and the variance of their number ``(2, deals)``.

    Args:
        deals: 1 for each run that is dealt to the first method ``(deals, runs)``.
        waits: Of the runs of one task.
    """
    moments = np.unique(waits.steps[waits.met])
    waiting = (waits.steps[:, None] >= moments).astype(float)  # (runs, moments)
    meeting = ((waits.steps[:, None] == moments) & waits.met[:, None]).astype(float)
    there, met = waiting.sum(0), meeting.sum(0)  # (moments,)
    share = deals @ waiting / there  # (deals, moments), of the first method among those who wait
    excess = deals @ meeting.sum(1) - share @ met
    variance = (share * (1 - share)) @ (met * (there - met) / np.maximum(there - 1, 1))
    return np.stack([excess, variance])


def _standardised(excess: Numbers) -> Numbers:
    """Excess over its deviation ``(deals,)``; 0 where nothing could have come otherwise."""
    by_chance = excess[1] > ROUNDING
    return np.where(by_chance, excess[0] / np.sqrt(np.where(by_chance, excess[1], 1.0)), 0.0)


def _all_deals(count: int, runs: int) -> Numbers:
    """All ways to deal some of the runs to the first method ``(ways, runs)``."""
    ways = math.comb(runs, count)
    chosen = np.array(list(combinations(range(runs), count)), np.int64).reshape(ways, count)
    deals = np.zeros((ways, runs))
    np.put_along_axis(deals, chosen, 1.0, axis=1)
    return deals


def _each_with_each(some: Numbers, others: Numbers) -> Numbers:
    """Sums of all pairs: ``(2, n)`` and ``(2, m)`` become ``(2, n * m)``."""
    return (some[:, :, None] + others[:, None]).reshape(2, -1)
