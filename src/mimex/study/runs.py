"""Run folders as arrays: found and loaded, every metric a column."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.files import read_object, read_own

Numbers = NDArray[np.float64]

LARGEST = 1e100
"""Values beyond it are taken for missing: sums of their squares would not be numbers."""

_LARGEST_STEP = 2.0**63

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
        """Whether the run has come to the end of its budget, or has given up (--futility)."""
        steps, gave_up = self.columns["step"], self.columns.get("train/gave_up")
        if len(steps) == 0:
            return False
        futile = gave_up is not None and gave_up[-1] == 1.0
        return bool(futile or steps[-1] >= self.config.get("steps", 0))

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
        value = run.config.get(name, kind())
        if not isinstance(value, kind) or (isinstance(value, int) and abs(value) > _LARGEST_STEP):
            raise ValueError(
                f"{config} has {repr(value)[:40]} for {name}: restore it, or leave it out."
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
    return [load_run(folder) for folder in folders.values()]


def read_columns(text: bytes) -> dict[str, Numbers]:
    """The metrics of JSON lines by name ``(rows,)``, NaN where a row lacks one or has null.

    Lines that are no rows are left out, as continuing the run would do.
    """
    rows = [row for line in text.split(b"\n")[:-1] if (row := read_row(line)) is not None]
    names = dict.fromkeys(name for row in rows for name in row) or {"step": None}
    return {name: np.array([_number(row.get(name)) for row in rows], float) for name in names}


def read_row(line: bytes) -> dict[str, Any] | None:
    """A row of metrics.jsonl with the step that it was reported at; None if the line is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = row.get("step") if isinstance(row, dict) else None
    return row if isinstance(step, int | float) and 0 <= step < _LARGEST_STEP else None


def _number(value: Any) -> float:
    if isinstance(value, float):
        return value
    return float(value) if isinstance(value, int) and abs(value) < 1 << 1023 else np.nan


def _folders(path: Path, seen: set[Path]) -> list[Path]:
    """Run folders at or below a path, by name; links are followed, but never in circles."""
    if not path.is_dir() or path.resolve() in seen:
        return []
    seen.add(path.resolve())
    if (path / "config.json").exists() and (path / "metrics.jsonl").exists():
        return [path]
    children = sorted(child for child in path.iterdir() if not child.name.startswith("."))
    return [folder for child in children for folder in _folders(child, seen)]
