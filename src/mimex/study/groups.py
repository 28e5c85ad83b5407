"""Groups of runs that differ only in the seed, with their curves and scores.

A group is named by its study's labels, or by the settings that differ between groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from mimex.bonus import BONUSES
from mimex.config import AGENTS
from mimex.study.runs import Floats, Run
from mimex.study.statistics import final_value
from mimex.train.folder import flat_settings

TaskScores = Mapping[str, Floats]
"""Scores of one method by task ``(seeds,)``."""

OfTask = TypeVar("OfTask")

BASELINE = "none"
"""The method that the others are compared with."""

POINTS = 200
"""Maximum number of points of a common grid."""

METRICS = ("eval/success", "eval/return", "train/success", "train/return")
"""Score metrics without a plan: the first that was logged is used."""

NO_METHOD = ("task", "seed", "out", "threads", "track")
"""Settings that are not part of a method."""

FIRST = ("bonus", "reward", "agent", "observation", "preset")
"""Settings that name a method by their value alone, and are tried first."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one task and one method, which differ only in the seed."""

    task: str
    label: str
    runs: tuple[Run, ...]


def group_runs(runs: Sequence[Run], labels: Mapping[str, str] | None = None) -> list[Group]:
    """Groups runs that differ only in the seed, ordered by task and method.

    Args:
        runs: Runs of any tasks and methods.
        labels: Name of the method by run name, in the order of tasks and methods; other runs are
            dropped. By default names are made of the settings that differ between runs of a task.

    Raises:
        ValueError: If two runs of a group have the same seed: intervals would be too narrow.
    """
    if labels is None:
        named = list(zip(runs, method_labels([run.config for run in runs]), strict=True))
        order = sorted({label for _, label in named}, key=natural)
    else:
        by_name = {run.name: run for run in runs}
        named = [(by_name[name], labels[name]) for name in labels if name in by_name]
        order = list(dict.fromkeys(labels.values()))
    tasks = dict.fromkeys(run.task for run, _ in named)
    groups: dict[tuple[str, str], dict[int, Run]] = {
        (task, label): {} for task in tasks for label in order
    }
    for run, label in named:
        seeds = groups[run.task, label]
        if run.seed in seeds:
            raise ValueError(
                f"{run.path} and {seeds[run.seed].path} are the same run: {run.task}, {label}, "
                f"seed {run.seed}. Leave one of them out."
            )
        seeds[run.seed] = run
    return [
        Group(*key, runs=tuple(seeds[seed] for seed in sorted(seeds)))
        for key, seeds in groups.items()
        if seeds
    ]


def seed_count(groups: Sequence[Group]) -> str:
    """Returns how many seeds the groups have, such as "3 seeds" or "2 to 3 seeds"."""
    counts = sorted({len(group.runs) for group in groups})
    span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{span} seed{'' if counts == [1] else 's'}"


def method_labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names the method of every run by the fewest settings that distinguish the runs of a task.

    Settings are added one by one, if they distinguish runs that had the same name so far.
    """
    methods = [method_settings(config) for config in configs]
    names = list(dict.fromkeys(name for method in methods for name in method))
    names.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    named: list[tuple[str, ...]] = [(str(config.get("task")),) for config in configs]
    for name in names:
        values: dict[tuple[str, ...], set[str]] = {}
        for method, before in zip(methods, named, strict=True):
            values.setdefault(before, set()).add(method.get(name, ""))
        if any(len(seen) > 1 for seen in values.values()):
            words = [_words(name, method[name]) if name in method else "" for method in methods]
            named = [(*before, word) for before, word in zip(named, words, strict=True)]
    labels = [", ".join(filter(None, words)) for _, *words in named]
    plain = [str(config.get("bonus", "all runs")) for config in configs]
    return [label or alone for label, alone in zip(labels, plain, strict=True)]


def natural(label: str) -> tuple[Any, ...]:
    """Sort key of labels: no bonus first, numbers by value."""
    parts = re.split(r"(\d+(?:\.\d+)?)", label)
    # Text and numbers alternate, so that only values of the same type are compared.
    values = (float(part) if index % 2 else part for index, part in enumerate(parts))
    return (not label.startswith("none"), *values)


def method_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Returns the settings of a run's method by dotted name.

    Sections of other bonuses and agents are left out, and ``scale`` if there is no bonus.
    """
    bonus, agent = config.get("bonus"), config.get("agent")
    unused = {*BONUSES, *(AGENTS if agent else ()), *NO_METHOD} - {bonus, agent}
    if bonus == "none":
        unused.add("scale")
    return flat_settings({name: value for name, value in config.items() if name not in unused})


def common_grid(runs: Sequence[Run], metric: str, points: int = POINTS) -> Floats:
    """Returns steps at which every run that logged a metric has a value.

    These are (a subset of) the logged steps if they are the same for all runs, and otherwise evenly
    spaced in the range that all runs cover. Empty if no run logged the metric.
    """
    steps = [steps for steps, _ in (run.curve(metric) for run in runs) if len(steps)]
    if not steps:
        return np.empty(0)
    if all(np.array_equal(steps[0], other) for other in steps):
        chosen = np.linspace(0, len(steps[0]) - 1, min(points, len(steps[0]))).round()
        return steps[0][chosen.astype(np.int64)]
    low, high = max(s[0] for s in steps), min(s[-1] for s in steps)
    return np.linspace(low, high, points) if low < high else np.empty(0)


def curves(group: Group, metric: str, grid: Floats) -> Floats:
    """Returns a metric of every run that logged it ``(runs, grid)``, linearly interpolated.

    NaN outside of the steps that a run covers.
    """
    rows = []
    for run in group.runs:
        steps, values = run.curve(metric)
        if len(steps):
            rows.append(np.interp(grid, steps, values, left=np.nan, right=np.nan))
    return np.array(rows).reshape(len(rows), len(grid))


def score_metric(runs: Sequence[Run]) -> str:
    """Returns the first of ``METRICS`` that any run has logged.

    Raises:
        ValueError: If no run has logged one.
    """
    for metric in METRICS:
        if any(len(run.curve(metric)[0]) for run in runs):
            return metric
    first = runs[0].path / "metrics.jsonl" if runs else "a run folder"
    raise ValueError(
        f"none of the {len(runs)} runs has logged {', '.join(METRICS)}: there is nothing to "
        f"compare yet; see {first}."
    )


def bounds(metric: str) -> tuple[float, float]:
    """Returns the range of a metric: 0 to 1 for rates."""
    rate = metric.endswith(("/success", "/coverage", "/share")) or "/reached_" in metric
    return (0.0, 1.0) if rate else (-np.inf, np.inf)


def final_scores(
    groups: Sequence[Group], metric: str, of: Callable[[Floats, Floats], float] = final_value
) -> dict[str, dict[str, Floats]]:
    """Returns a score of each finished run by method, then by task ``(seeds,)``.

    ``of`` computes the score from steps and values. If budgets differ, all runs of a task are cut
    at the smallest.
    """
    found = {
        (group.task, group.label): [
            run.curve(metric) for run in group.runs if run.finished and len(run.curve(metric)[0])
        ]
        for group in groups
    }
    shortest: dict[str, float] = {}
    for (task, _), curves in found.items():
        ends = [float(steps[-1]) for steps, _ in curves]
        shortest[task] = min([shortest.get(task, np.inf), *ends])
    scores: dict[str, dict[str, Floats]] = {}
    for (task, label), curves in found.items():
        if curves:
            numbers = [of(*_until(shortest[task], *curve)) for curve in curves]
            scores.setdefault(label, {})[task] = np.array(numbers)
    return scores


def comparable(scores: Mapping[str, Mapping[str, OfTask]]) -> dict[str, dict[str, OfTask]]:
    """Returns the scores of the tasks that all methods have."""
    first: Mapping[str, OfTask] = next(iter(scores.values()), {})
    shared = [task for task in first if all(task in by_task for by_task in scores.values())]
    if not shared:
        return {}
    return {label: {task: x[task] for task in shared} for label, x in scores.items()}


def _words(name: str, value: str) -> str:
    """Returns a setting as part of a label: ``mimex``, ``length 5``."""
    text = value.strip('"')
    return text if name in FIRST else f"{name.rpartition('.')[2].replace('_', ' ')} {text}"


def _until(end: float, steps: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Returns a curve up to a step, at least its first point."""
    count = max(1, int(np.searchsorted(steps, end, side="right")))
    return steps[:count], values[:count]
