"""The page's tables: what every method came to, and what its runs were made with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
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
    method_settings,
)
from mimex.study.runs import Numbers, Run
from mimex.study.statistics import (
    Estimate,
    area_under_curve,
    interval,
    probability_of_improvement,
)
from mimex.train.flat import flat_settings
from mimex.train.health import WATCHED, diagnosis

BESIDE = ("eval/return", "explore/coverage", "bonus/share")
"""Metrics that are told beside the score."""

UNSET = "not set"
"""What the page shows for a setting that a run does not have."""


def overview(groups: Sequence[Group], score: str) -> list[dict[str, Any]]:
    """One row a group: what its finished runs came to, with intervals, and how far all are."""
    finals = final_scores(groups, score)
    areas = final_scores(groups, score, of=area_under_curve)
    beside = {name: final_scores(groups, name) for name in BESIDE if name != score}
    rows = []
    for group in groups:
        reached = [run.columns["step"][-1:] for run in group.runs]
        steps = [int(last[0]) if len(last) else 0 for last in reached]
        rows.append(
            {
                "task": group.task,
                "method": group.label,
                "seeds": len(group.runs),
                "finished": len(_of(finals, group)),
                "steps": [min(steps), max(steps)],
                "scores": _of(finals, group).tolist(),
                "final": estimate(_of(finals, group), score),
                "area": estimate(_of(areas, group), score),
                **{name: estimate(_of(scores, group), name) for name, scores in beside.items()},
            }
        )
    return rows


def _of(scores: Mapping[str, TaskScores], group: Group) -> Numbers:
    """The scores of a group's runs ``(seeds,)``, of which there may be none."""
    return scores.get(group.label, {}).get(group.task, np.empty(0))


def estimate(values: Numbers, metric: str) -> dict[str, float] | None:
    """A mean, with its interval where there are two values or more; None of nothing."""
    if len(values) < 2:
        return {"value": float(values[0])} if len(values) else None
    return _plain(interval({"": values}, "mean"), metric)


def aggregate(groups: Sequence[Group], score: str) -> dict[str, Any]:
    """The tasks that all methods have finished runs of, and one row a method over these tasks.

    No rows where there is one such task only, or one run of a task: an interval would be missing.
    """
    shared = comparable(final_scores(groups, score))
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
    return asdict(probability_of_improvement(methods[name], methods[BASELINE]))


def _plain(found: Estimate, metric: str) -> dict[str, float]:
    low, high = np.clip([found.low, found.high], *bounds(metric)).tolist()
    return {"value": found.value, "low": low, "high": high}


def compared_settings(groups: Sequence[Group]) -> dict[str, Any]:
    """Settings in which methods differ, by method, and those that all runs share.

    A method whose runs differ among themselves (by task, for example) has several values.
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


def ablations(groups: Sequence[Group], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For every setting of the bonus, the loop or the agent that was varied: scores by its value.

    Args:
        groups: Runs by task and method.
        rows: The overview's rows of the same groups.
    """
    settings = [method_settings(group.runs[0].config) for group in groups]
    varied: dict[str, None] = {}  # settings below a section that differ on the same task
    for task in dict.fromkeys(group.task for group in groups):
        sets = [found for group, found in zip(groups, settings, strict=True) if group.task == task]
        for name in dict.fromkeys(name for found in sets for name in found if "." in name):
            if len({found[name] for found in sets if name in found}) > 1:
                varied[name] = None
    tables = []
    for setting in varied:
        points = [
            {"task": g.task, "method": g.label, "value": found[setting], "final": row["final"]}
            for g, found, row in zip(groups, settings, rows, strict=True)
            if setting in found and row["final"] is not None
        ]
        values = sorted({point["value"] for point in points}, key=_order)
        if len(values) > 1:
            tables.append({"setting": setting, "values": values, "points": points})
    return tables


def versions(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every combination of versions, source revision and machine, with its runs."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        about = run.about
        key = {
            "versions": about.get("versions", {}),
            "revision": about.get("git_revision"),
            "platform": about.get("platform"),
            "cores": about.get("cores"),
        }
        entry = found.setdefault(json.dumps(key, sort_keys=True), key | {"runs": []})
        resumed = len(about.get("resumed", []))
        entry["runs"].append(
            {"name": run.name, "command": about.get("command"), "resumed": resumed}
        )
    return list(found.values())


def _settings(run: Run) -> dict[str, str]:
    flat = flat_settings(run.config)
    hidden = tuple(f"{name}." for name in NO_METHOD)
    return {n: v for n, v in flat.items() if n not in NO_METHOD and not n.startswith(hidden)}


def _order(value: str) -> tuple[int, float, str]:
    """Numbers by size, then words."""
    try:
        return 0, float(json.loads(value)), value
    except (ValueError, TypeError):
        return 1, 0.0, value


def complaints(runs: Sequence[Run]) -> list[list[dict[str, Any]]]:
    """What training said of its health, by kind: runs, steps and words."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        for step, words in diagnosis(_rows(run)):
            kind = re.split("[:,]", words, maxsplit=1)[0]  # what follows has numbers of the run's
            kinds.setdefault(kind, []).append({"run": run.name, "step": step, "words": words})
    return [*kinds.values()]


def _rows(run: Run) -> Iterator[dict[str, float]]:
    """What a run's rows say of its health."""
    columns = {name: run.columns[name] for name in ("step", *WATCHED) if name in run.columns}
    for values in zip(*columns.values(), strict=True):
        row = zip(columns, values, strict=True)
        yield {name: float(value) for name, value in row if np.isfinite(value)}
