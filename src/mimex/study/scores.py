"""One number a run, and which runs may be compared by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mimex.study.runs import Group, Run
from mimex.study.statistics import final_value

Numbers = NDArray[np.float64]
TaskScores = Mapping[str, Numbers]
"""Scores of one method by task ``(seeds,)``."""

METRICS = ("eval/success", "eval/return", "train/success", "train/return")
"""What runs are judged by where no plan says it: the first that they reported."""


def score_metric(runs: Sequence[Run]) -> str:
    """The metric that runs are judged by.

    Raises:
        ValueError: If no run has reported one.
    """
    for metric in METRICS:
        if any(len(run.curve(metric)[0]) for run in runs):
            return metric
    raise ValueError(
        f"none of the {len(runs)} runs has reported {', '.join(METRICS)}: there is nothing to "
        "compare yet."
    )


def bounds(metric: str) -> tuple[float, float]:
    """The values that a metric can have: 0 to 1 for rates and shares."""
    share = metric.endswith(("/success", "/coverage", "/share")) or "/reached_" in metric
    return (0.0, 1.0) if share else (-np.inf, np.inf)


def final_scores(
    groups: Sequence[Group], metric: str, of: Callable[[Numbers, Numbers], float] = final_value
) -> dict[str, dict[str, Numbers]]:
    """By method, then by task: one number of each finished run's curve ``(seeds,)``.

    Where budgets differ, all runs of a task are cut at the smallest, so that none is judged by
    more steps than another.

    Args:
        groups: Runs by task and method.
        metric: Of which the curve is.
        of: What number, from its steps and its values.
    """
    told = {
        (group.task, group.label): [
            run.curve(metric) for run in group.runs if run.finished and len(run.curve(metric)[0])
        ]
        for group in groups
    }
    shortest: dict[str, float] = {}
    for (task, _), curves in told.items():
        ends = [float(steps[-1]) for steps, _ in curves]
        shortest[task] = min([shortest.get(task, np.inf), *ends])
    scores: dict[str, dict[str, Numbers]] = {}
    for (task, label), curves in told.items():
        if curves:
            numbers = [of(*_until(shortest[task], *curve)) for curve in curves]
            scores.setdefault(label, {})[task] = np.array(numbers)
    return scores


def comparable(scores: Mapping[str, TaskScores]) -> dict[str, dict[str, Numbers]]:
    """The scores of the tasks on which every method has some, so that none has easier tasks."""
    methods = list(scores.values())
    shared = [task for task in methods[0] if all(task in by_task for by_task in methods)]
    if not shared:
        return {}
    return {label: {task: x[task] for task in shared} for label, x in scores.items()}


def _until(end: float, steps: Numbers, values: Numbers) -> tuple[Numbers, Numbers]:
    """A curve up to a step; its first point where it begins later."""
    count = max(1, int(np.searchsorted(steps, end, side="right")))
    return steps[:count], values[:count]
