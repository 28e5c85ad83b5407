"""The overview: what every method came to on every task, and over all tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.study.runs import Group, Run
from mimex.study.scores import TaskScores, bounds, comparable, final_scores
from mimex.study.statistics import (
    Estimate,
    area_under_curve,
    interval,
    probability_of_improvement,
)

BASELINE = "none"
"""The method that the others are compared with, where it is there."""

BESIDE = ("eval/return", "explore/coverage", "bonus/share")
"""Metrics that are told beside the score."""

Numbers = NDArray[np.float64]


def overview(groups: Sequence[Group], score: str) -> list[dict[str, Any]]:
    """One row a group: what its finished runs came to, with intervals, and how far all are."""
    finals = final_scores(groups, score)
    areas = final_scores(groups, score, of=_area)
    beside = {name: final_scores(groups, name) for name in BESIDE if name != score}
    rows = []
    for group in groups:
        steps = [_last_step(run) for run in group.runs]
        values = finals.get(group.label, {}).get(group.task, np.empty(0))
        rows.append(
            {
                "task": group.task,
                "method": group.label,
                "seeds": len(group.runs),
                "finished": len(values),
                "steps": [min(steps), max(steps)],
                "scores": values.tolist(),
                "final": estimate(values, score),
                "area": estimate(areas.get(group.label, {}).get(group.task), score),
                **{
                    name: estimate(scores.get(group.label, {}).get(group.task), name)
                    for name, scores in beside.items()
                },
            }
        )
    return rows


def estimate(values: Numbers | None, metric: str) -> dict[str, float] | None:
    """A mean, with its interval where there are two values or more; None of nothing."""
    if values is None or len(values) == 0:
        return None
    if len(values) == 1:
        return {"value": float(values[0])}
    return _plain(interval({"": values}, "mean"), metric)


def aggregate(groups: Sequence[Group], score: str) -> dict[str, Any]:
    """The tasks that all methods have finished runs of, and one row a method over these tasks.

    No rows where there is one such task only, or one run of a task: an interval would be missing.
    """
    scores = final_scores(groups, score)
    shared = comparable(scores) if scores else {}
    tasks = list(next(iter(shared.values()), {}))
    alone = any(len(values) < 2 for by_task in shared.values() for values in by_task.values())
    if len(tasks) < 2 or alone:
        return {"tasks": tasks, "rows": []}
    rows = [
        {
            "method": name,
            "iqm": _plain(interval(by_task, "iqm"), score),
            "mean": _plain(interval(by_task, "mean"), score),
            "improvement": _improvement(name, shared),
        }
        for name, by_task in shared.items()
    ]
    return {"tasks": tasks, "rows": rows}


def _improvement(name: str, methods: Mapping[str, TaskScores]) -> dict[str, float] | None:
    if name == BASELINE or BASELINE not in methods:
        return None
    found = probability_of_improvement(methods[name], methods[BASELINE])
    return {"value": found.value, "low": found.low, "high": found.high}


def _area(steps: Numbers, values: Numbers) -> float:
    """The mean height of a curve, also of one that is a single point."""
    return area_under_curve(steps, values) if len(steps) > 1 else float(values[0])


def _last_step(run: Run) -> int:
    steps = run.columns["step"]
    return int(steps[-1]) if len(steps) else 0


def _plain(found: Estimate, metric: str) -> dict[str, float]:
    low, high = np.clip([found.low, found.high], *bounds(metric)).tolist()
    return {"value": found.value, "low": low, "high": high}
