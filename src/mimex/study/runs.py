"""Run folders as arrays: one column per metric."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.files import read_object, read_own
from mimex.track.jsonl import MAX_STEP, read_row

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Run:
    """The contents of a run folder.

    Attributes:
        name: The folder's name.
        path: The folder.
        config: Nested settings of config.json.
        about: Versions, command and machine of about.json; empty if it is missing.
        columns: Every metric by name, and ``step``: ``(rows,)`` each, NaN where a row lacks it.
    """

    name: str
    path: Path
    config: dict[str, Any]
    about: dict[str, Any]
    columns: dict[str, Floats]

    @property
    def task(self) -> str:
        """The task's name."""
        return str(self.config.get("task", "unknown task"))

    @property
    def seed(self) -> int:
        """Random seed."""
        return int(self.config.get("seed", 0))

    @property
    def finished(self) -> bool:
        """Whether the run has reached its step budget, or was stopped by --futility."""
        steps = self.columns["step"]
        return len(steps) > 0 and bool(self.gave_up or steps[-1] >= self.config.get("steps", 0))

    @property
    def gave_up(self) -> bool:
        """Whether the run was stopped by --futility."""
        logged = self.columns.get("train/gave_up", np.empty(0))
        return len(logged) > 0 and bool(logged[-1] == 1.0)

    def curve(self, metric: str) -> tuple[Floats, Floats]:
        """Returns the steps at which a metric was logged, and its values; both may be empty.

        A run that gave up counts to the end of its budget, with its last evaluation.
        """
        values = self.columns.get(metric, np.empty(0))
        logged = np.isfinite(values)
        steps, values = self.columns["step"][: len(values)][logged], values[logged]
        # A damaged file may repeat steps or go back; curves have increasing steps.
        increasing = steps > np.append(-np.inf, np.maximum.accumulate(steps)[:-1])[: len(steps)]
        steps, values = steps[increasing], values[increasing]
        budget = self.config.get("steps", 0)
        if self.gave_up and metric.startswith("eval/") and len(steps) and steps[-1] < budget:
            steps, values = np.append(steps, budget), np.append(values, values[-1])
        return steps, values


def load_run(path: Path) -> Run:
    """Loads a run folder."""
    config, about = path / "config.json", path / "about.json"
    if not config.exists():
        raise FileNotFoundError(
            f"{path} has no config.json: expected a run folder written by `mimex train`."
        )
    metrics = path / "metrics.jsonl"
    settings = read_object(config)
    for name, kind in (("task", str), ("bonus", str), ("seed", int), ("steps", int)):
        value = settings.get(name, kind())
        if not isinstance(value, kind) or (isinstance(value, int) and abs(value) >= MAX_STEP):
            raise ValueError(
                f"{config} has {repr(value)[:40]} for {name}: restore it, or leave the run out."
            )
    return Run(
        name=path.resolve().name,
        path=path,
        config=settings,
        about=read_object(about) if about.exists() else {},
        columns=read_columns(read_own(metrics) if metrics.exists() else b""),
    )


def find_runs(paths: Iterable[Path | str]) -> list[Run]:
    """Loads every run folder at or below some paths once, ordered by name.

    Args:
        paths: Run folders, folders of run folders, or study folders.

    Raises:
        FileNotFoundError: If a path does not exist or has no run at or below it.
    """
    folders: dict[Path, Path] = {}  # by resolved path, so that no run counts twice
    for path in map(Path, paths):
        found = _folders(path, set())
        if not found:
            what = "has no run folder at or below it" if path.exists() else "does not exist"
            raise FileNotFoundError(
                f"{path} {what}: expected a folder with config.json and metrics.jsonl, written by "
                "`mimex train`, or one that contains such folders."
            )
        for folder in found:
            folders.setdefault(folder.resolve(), folder)
    return [load_run(folder) for folder in folders.values()]


def read_columns(text: bytes) -> dict[str, Floats]:
    """Returns the metrics of JSON lines by name ``(rows,)``, NaN where a row lacks one or has null.

    Lines that are not rows, such as a half-written last one, are skipped.
    """
    rows = [row for line in text.split(b"\n")[:-1] if (row := read_row(line)) is not None]
    names = dict.fromkeys(name for row in rows for name in row) or {"step": None}
    return {name: np.array([_number(row.get(name)) for row in rows], float) for name in names}


def _number(value: Any) -> float:
    if isinstance(value, int) and abs(value) >= MAX_STEP:  # may be too large for a float
        return np.nan
    return float(value) if isinstance(value, int | float) else np.nan


def _folders(path: Path, seen: set[Path]) -> list[Path]:
    """Returns run folders at or below a path; links are followed, but not in circles."""
    if not path.is_dir() or path.resolve() in seen:
        return []
    seen.add(path.resolve())
    if (path / "config.json").exists() and (path / "metrics.jsonl").exists():
        return [path]
    children = sorted(child for child in path.iterdir() if not child.name.startswith("."))
    return [folder for child in children for folder in _folders(child, seen)]
