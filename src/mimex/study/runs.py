"""Run folders as arrays: found, loaded, put into groups that differ in the seed alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.files import read_object, read_own
from mimex.study.labels import method_labels, natural
from mimex.study.rows import read_columns

Numbers = NDArray[np.float64]

POINTS = 200
"""Of a common grid at most: more than a panel of a figure shows."""


LARGEST = 1e100
"""Values beyond it are taken for missing: sums of their squares would not be numbers."""

_KINDS = {"task": str, "bonus": str, "seed": int, "steps": int}
"""Of settings that every run has."""


@dataclass(frozen=True, eq=False)
class Run:
    """What is in a run folder.

    Attributes:
        name: The folder's name.
        path: The folder.
        config: Nested settings, as config.json has them.
        about: Versions, command and machine, as about.json has them; empty if it is missing.
        columns: Every metric by name, and ``step``: ``(rows,)`` each, NaN where a row lacks it.
    """

    name: str
    path: Path
    config: dict[str, Any]
    about: dict[str, Any]
    columns: dict[str, Numbers]

    @property
    def task(self) -> str:
        """The task's name."""
        return str(self.config.get("task", "unknown task"))

    @property
    def seed(self) -> int:
        """The seed of everything."""
        return int(self.config.get("seed", 0))

    @property
    def finished(self) -> bool:
        """Whether the run has come to the end of its budget."""
        steps = self.columns["step"]
        return len(steps) > 0 and bool(steps[-1] >= self.config.get("steps", 0))

    def curve(self, metric: str) -> tuple[Numbers, Numbers]:
        """The steps at which a metric was reported, and its values; empty if it never was.

        Steps increase: a row that goes back, which no run writes, is left out.
        """
        if metric not in self.columns:
            return np.empty(0), np.empty(0)
        values = self.columns[metric]
        told = np.abs(values) < LARGEST
        steps, values = self.columns["step"][told], values[told]
        ahead = steps > np.append(-np.inf, np.maximum.accumulate(steps)[:-1])[: len(steps)]
        return steps[ahead], values[ahead]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one task and one method, which differ in the seed alone."""

    task: str
    label: str
    runs: tuple[Run, ...]


def load_run(path: Path) -> Run:
    """Loads a run folder; a half-written last row of its metrics is left out."""
    config, about = path / "config.json", path / "about.json"
    if not config.exists():
        raise FileNotFoundError(
            f"{path} has no config.json: expected a run folder, as `mimex train` leaves it."
        )
    metrics = path / "metrics.jsonl"
    run = Run(
        name=path.resolve().name,
        path=path,
        config=read_object(config),
        about=read_object(about) if about.exists() else {},
        columns=read_columns(read_own(metrics) if metrics.exists() else b""),
    )
    for name, kind in _KINDS.items():
        if not isinstance(run.config.get(name, kind()), kind):
            raise ValueError(
                f"{config} has {run.config[name]!r} for {name}: restore it, or leave it out."
            )
    told, resumed = run.about.get("versions", {}), run.about.get("resumed", [])
    if not isinstance(told, dict) or not isinstance(resumed, list):
        raise ValueError(f"{about} does not tell the run's versions: restore or remove it.")
    return run


def find_runs(paths: Iterable[Path | str]) -> list[Run]:
    """Loads every run folder at or below some paths, each once, in the order of their names.

    Args:
        paths: Run folders, folders of run folders, or folders of studies.

    Raises:
        FileNotFoundError: If a path does not exist or has no run at or below it.
    """
    folders: dict[Path, Path] = {}  # by where they really are, so that none counts twice
    for path in map(Path, paths):
        found = _folders(path, set())
        if not found:
            what = "has no run folder at or below it" if path.exists() else "does not exist"
            raise FileNotFoundError(
                f"{path} {what}: expected a folder with config.json and metrics.jsonl, as "
                "`mimex train` leaves it, or one that holds such folders."
            )
        for folder in found:
            folders.setdefault(folder.resolve(), folder)
    with ThreadPoolExecutor() as pool:  # NumPy and the disk work side by side
        return list(pool.map(load_run, folders.values()))


def group_runs(runs: Sequence[Run], labels: Mapping[str, str] | None = None) -> list[Group]:
    """Puts runs together that differ in the seed alone: task by task, its methods in order.

    Args:
        runs: Runs of any tasks and methods.
        labels: What to call each run's method, by the run's name, in the order of tasks and
            methods; runs without are left out. By default the name is made of the settings in
            which the runs of a task differ.

    Raises:
        ValueError: If two runs of a group have the same seed: counting one result twice would
            make intervals too narrow.
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


def common_grid(runs: Sequence[Run], metric: str, points: int = POINTS) -> Numbers:
    """Steps at which every run that reported a metric has a value of it.

    Those of the runs themselves, or some of them, if all reported at the same steps; otherwise
    evenly spaced from the last first report to the first last one. Empty if no run reported it.
    """
    steps = [steps for steps, _ in (run.curve(metric) for run in runs) if len(steps)]
    if not steps:
        return np.empty(0)
    if all(np.array_equal(steps[0], other) for other in steps):
        chosen = np.linspace(0, len(steps[0]) - 1, min(points, len(steps[0]))).round()
        return steps[0][chosen.astype(np.int64)]
    low, high = max(s[0] for s in steps), min(s[-1] for s in steps)
    return np.linspace(low, high, points) if low < high else np.empty(0)


def curves(group: Group, metric: str, grid: Numbers) -> Numbers:
    """A metric of every run that reported it ``(runs, grid)``, linear between its own steps.

    NaN outside of the steps that a run covers.
    """
    rows = []
    for run in group.runs:
        steps, values = run.curve(metric)
        if len(steps):
            rows.append(np.interp(grid, steps, values, left=np.nan, right=np.nan))
    return np.array(rows).reshape(len(rows), len(grid))


def _folders(path: Path, seen: set[Path]) -> list[Path]:
    """Run folders at or below a path, by name; links are followed, but never in circles."""
    if not path.is_dir() or path.resolve() in seen:
        return []
    seen.add(path.resolve())
    if (path / "config.json").exists() and (path / "metrics.jsonl").exists():
        return [path]
    children = sorted(child for child in path.iterdir() if not child.name.startswith("."))
    return [folder for child in children for folder in _folders(child, seen)]
