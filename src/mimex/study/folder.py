"""The study folder: the plan, the run folders and their logs.

study.json      {"plan": ..., "scale": ..., "runs": [{"name", "task", "seed", "labels",
                "settings"}, ...]}: the plan, and every run ever requested in this folder
runs/NAME/      run folder of `mimex train`
logs/NAME.log   output of the run, of all attempts
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import Any

from mimex.files import open_own, printable, read_object, replacing
from mimex.study.backends import Job
from mimex.study.groups import Group, group_runs, score_metric
from mimex.study.plan import Plan, PlannedRun, Settings
from mimex.study.runs import Run
from mimex.track.jsonl import read_row
from mimex.train.checkpoint import Checkpoints, step_files
from mimex.train.folder import FolderInUseError, RunFolder

_TAIL = 1 << 16  # bytes, enough for many rows of metrics or lines of a log


class StudyFolder:
    """A study's folder, whose runs are written by other processes."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def record(self, plan: Plan, scale: str, runs: Sequence[PlannedRun]) -> None:
        """Adds runs to study.json.

        Raises:
            ValueError: If the folder has a run of the same name with other settings. Only the
                number of steps may differ: the run is then continued.
        """
        before = {run["name"]: run for run in self.read()["runs"]}
        for run in runs:
            known = _compared(before.get(run.name, {}).get("settings", {}))
            asked = _compared(run.settings)
            if known and known != asked:
                raise ValueError(
                    f"{self.path} has another study: {run.name} was started with {known}, but "
                    f"{asked} was requested. Choose another --out."
                )
            if self.run(run.name).is_symlink():
                raise OSError(
                    f"{self.run(run.name)} is a symbolic link, but runs are written to the study's "
                    "own folder: remove the link, or choose another --out."
                )
        now = {run.name: asdict(run) for run in runs}
        text = json.dumps(
            {"plan": asdict(plan), "scale": scale, "runs": list((before | now).values())},
            indent=2,
        )
        with replacing(self.path / "study.json") as aside:
            aside.write_text(text + "\n")

    def read(self) -> dict[str, Any]:
        """Reads study.json; without one, there are no runs."""
        path = self.path / "study.json"
        if not os.path.lexists(path):
            return {"runs": []}
        study = read_object(path)
        if not isinstance(study.get("runs"), list):
            raise ValueError(f"{path} has no list of runs: restore it, or choose another folder.")
        return study

    def run(self, name: str) -> Path:
        return self.path / "runs" / name

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def job(self, run: PlannedRun, threads: int) -> Job:
        return Job(run.name, tuple(run.arguments), self.run(run.name), self.log(run.name), threads)

    def latest(self, name: str) -> dict[str, float]:
        """Returns the last complete row of a run's metrics; empty before the first."""
        *lines, _ = _tail(self.run(name) / "metrics.jsonl").split(b"\n")
        newest = next(filter(None, map(read_row, reversed(lines))), {})
        return {name: value for name, value in newest.items() if isinstance(value, int | float)}

    def finished(self, run: PlannedRun) -> bool:
        """Whether a run has ended (by its budget or --futility) and saved a last checkpoint."""
        latest = self.latest(run.name)
        step = latest.get("step", 0)
        if step < run.steps and latest.get("train/gave_up") != 1.0:
            return False
        return max(step_files(self.run(run.name) / "checkpoints"), default=-1) >= step

    def repair(self, run: PlannedRun) -> None:
        """Completes the last save of a finished run that was killed during it."""
        checkpoints = Checkpoints(self.run(run.name) / "checkpoints")
        if not checkpoints.complete:
            with suppress(OSError, FolderInUseError), RunFolder(self.run(run.name)):
                checkpoints.repair()

    def log_tail(self, name: str, lines: int = 5) -> list[str]:
        """Returns the last non-empty lines of a run's log."""
        log = _tail(self.log(name)).decode(errors="replace")
        text = [printable(line.rstrip()) for line in log.splitlines()]
        return [line for line in text if line][-lines:]


def group_as_planned(runs: Sequence[Run]) -> tuple[list[Group], str]:
    """Returns groups of runs and their score metric, as in the plans of their studies.

    If a run belongs to no study, groups are named by the settings that differ. If plans disagree
    on the metric, it is the first of ``METRICS`` that the runs logged.
    """
    folders = dict.fromkeys(run.path.resolve().parent.parent for run in runs)
    studies = [StudyFolder(folder).read() for folder in folders]
    labels = {
        run["name"]: ", ".join(run["labels"].values()) for study in studies for run in study["runs"]
    }
    if any(run.name not in labels for run in runs):
        return group_runs(runs), score_metric(runs)
    metrics = {study.get("plan", {}).get("metric") for study in studies}
    metric = metrics.pop() if len(metrics) == 1 else None
    return group_runs(runs, labels), metric or score_metric(runs)


def _compared(settings: Settings) -> dict[str, Any]:
    """Returns the settings that may not change when a run is continued."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(settings)))  # tuples become lists
    return {name: value for name, value in plain.items() if name != "steps"}


def _tail(path: Path) -> bytes:
    try:
        with FileIO(open_own(path, os.O_RDONLY)) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            return file.read()
    except FileNotFoundError:
        return b""
