"""Tables of the report: scores, settings, warnings and versions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mimex.study.groups import (
    BASELINE,
    NO_METHOD,
    Group,
    TaskScores,
    bounds,
    comparable,
    final_scores,
)
from mimex.study.runs import Floats, Run
from mimex.study.statistics import (
    area_under_curve,
    interval,
    probability_of_improvement,
)
from mimex.train.folder import flat_settings
from mimex.train.health import WATCHED, all_warnings

EXTRA_METRICS = ("eval/return", "explore/coverage", "bonus/share")
"""Metrics with a column of their own next to the score."""

UNSET = "not set"
"""Shown for a setting that a run does not have."""


def overview(groups: Sequence[Group], score: str) -> list[dict[str, Any]]:
    """Returns one row per group: scores of its finished runs, and the steps of all of them."""
    finals = final_scores(groups, score)
    areas = final_scores(groups, score, of=area_under_curve)
    extra = {name: final_scores(groups, name) for name in EXTRA_METRICS if name != score}
    rows = []
    for group in groups:
        steps = [
            int(run.columns["step"][-1]) if len(run.columns["step"]) else 0 for run in group.runs
        ]
        scores = _of(finals, group)
        rows.append(
            {
                "task": group.task,
                "method": group.label,
                "seeds": len(group.runs),
                "finished": len(scores),
                "steps": [min(steps), max(steps)],
                "scores": scores.tolist(),
                "final": estimate(scores, score),
                "area": estimate(_of(areas, group), score),
                **{name: estimate(_of(found, group), name) for name, found in extra.items()},
            }
        )
    return rows


def _of(scores: Mapping[str, TaskScores], group: Group) -> Floats:
    return scores.get(group.label, {}).get(group.task, np.empty(0))


def estimate(values: Floats, metric: str) -> dict[str, float] | None:
    """Returns a mean, with its interval if there are two values or more; None without values."""
    if len(values) < 2:
        return {"value": float(values[0])} if len(values) else None
    return interval({"": values}, "mean", limits=bounds(metric))._asdict()


def aggregate(groups: Sequence[Group], score: str) -> dict[str, Any]:
    """Returns the tasks that every method has finished, and one row per method over these tasks.

    There are no rows if there are fewer than two such tasks, or only one run of a task.
    """
    shared = comparable(final_scores(groups, score))
    tasks = list(next(iter(shared.values()), {}))
    alone = any(len(values) < 2 for by_task in shared.values() for values in by_task.values())
    if len(tasks) < 2 or alone:
        return {"tasks": tasks, "rows": []}
    rows = [
        {
            "method": name,
            "iqm": interval(by_task, "iqm", limits=bounds(score))._asdict(),
            "mean": interval(by_task, "mean", limits=bounds(score))._asdict(),
            "improvement": None
            if name == BASELINE or BASELINE not in shared
            else probability_of_improvement(by_task, shared[BASELINE])._asdict(),
        }
        for name, by_task in shared.items()
    ]
    return {"tasks": tasks, "rows": rows}


def compared_settings(groups: Sequence[Group]) -> dict[str, Any]:
    """Returns the settings that differ, by method, and those that all runs share.

    A method whose runs differ from each other (by task, for example) has several values.
    """
    methods: dict[str, list[dict[str, str]]] = {}
    for group in groups:
        methods.setdefault(group.label, []).extend(_settings(run) for run in group.runs)
    names = list(dict.fromkeys(n for sets in methods.values() for s in sets for n in s))
    differ, same = [], []
    for name in names:
        values = {
            method: list(dict.fromkeys(settings.get(name, UNSET) for settings in sets))
            for method, sets in methods.items()
        }
        every = list(dict.fromkeys(v for found in values.values() for v in found))
        if len(every) > 1:
            differ.append({"name": name, "values": values})
        else:
            same.append({"name": name, "value": every[0]})
    return {"methods": list(methods), "differ": differ, "same": same}


def _settings(run: Run) -> dict[str, str]:
    return flat_settings({name: x for name, x in run.config.items() if name not in NO_METHOD})


def versions(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Returns every combination of packages, source revision and machine, with its runs."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        about = run.about
        key = {
            "versions": about.get("versions", {}),
            "revision": about.get("git_revision"),
            "platform": about.get("platform"),
            "cores": about.get("cores"),
        }
        entry = found.setdefault(json.dumps(key, sort_keys=True), key | {"runs": [], "resumed": 0})
        entry["runs"].append({"name": run.name, "command": about.get("command")})
        entry["resumed"] += len(about.get("resumed", []))
    return list(found.values())


def warnings(runs: Sequence[Run]) -> list[list[dict[str, Any]]]:
    """Returns the warnings of training, grouped by kind: run, step and message."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        columns = {name: run.columns[name] for name in ("step", *WATCHED) if name in run.columns}
        rows = (
            {name: float(x) for name, x in zip(columns, values, strict=True) if np.isfinite(x)}
            for values in zip(*columns.values(), strict=True)
        )
        for step, message in all_warnings(rows):
            kind = re.split("[:,]", message, maxsplit=1)[0]  # the rest has values of this run
            kinds.setdefault(kind, []).append({"run": run.name, "step": step, "message": message})
    return [*kinds.values()]
