"""The study folder: what was planned, the run folders, and their logs.

study.json      {"plan": ..., "scale": ..., "runs": [{"name", "task", "seed", "labels",
                "settings"}, ...]}: the plan, and every run that was ever asked for here
runs/NAME/      the run folder of `mimex train`
logs/NAME.log   all that the run said, of all attempts
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import Any

from mimex.files import open_own, printable, read_object, replacing
from mimex.study.groups import Group, group_runs, score_metric
from mimex.study.plan import Plan, PlannedRun, Settings
from mimex.study.runs import Run, read_row

_TAIL = 1 << 16  # bytes: many rows of metrics, many lines of a log


class StudyFolder:
    """A study's folder, whose runs other processes write.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def record(self, plan: Plan, scale: str, runs: Sequence[PlannedRun]) -> None:
        """Writes study.json: these runs, and those asked for before.

        Raises:
            ValueError: If the folder holds a run of the same name with other settings. More steps
                are no other settings: the run goes on.
        """
        before = {run["name"]: run for run in self.read()["runs"]}
        for run in runs:
            known = _compared(before.get(run.name, {}).get("settings", {}))
            asked = _compared(run.settings)
            if known and known != asked:
                raise ValueError(
                    f"{self.path} holds another study: {run.name} was started with {known}, now it "
                    f"would be {asked}. Choose another --out."
                )
            if self.run(run.name).is_symlink():
                raise OSError(
                    f"{self.run(run.name)} is a symbolic link, but a study's runs are in its own "
                    "folder: remove the link, or choose another --out."
                )
        now = {run.name: asdict(run) for run in runs}
        text = json.dumps(
            {"plan": plan.to_dict(), "scale": scale, "runs": list((before | now).values())},
            indent=2,
        )
        with replacing(self.path / "study.json") as aside:
            aside.write_text(text + "\n")

    def read(self) -> dict[str, Any]:
        """What study.json says; no runs where there is none yet."""
        path = self.path / "study.json"
        if not os.path.lexists(path):
            return {"runs": []}
        study = read_object(path)
        plan, runs = study.get("plan", {}), study.get("runs")
        metric = plan.get("metric", "") if isinstance(plan, dict) else None
        if not isinstance(metric, str) or not isinstance(runs, list) or not all(map(_is_run, runs)):
            raise ValueError(
                f"{path} does not tell a plan and its runs by name, labels and settings: restore "
                "it, or choose another folder."
            )
        return study

    def run(self, name: str) -> Path:
        """A run's folder."""
        return self.path / "runs" / name

    def log(self, name: str) -> Path:
        """The log of a run."""
        return self.path / "logs" / f"{name}.log"

    def latest(self, name: str) -> dict[str, float]:
        """The newest whole row of a run's metrics; empty before the first."""
        *lines, _ = _tail(self.run(name) / "metrics.jsonl").split(b"\n")
        newest = next(filter(None, map(read_row, reversed(lines))), {})
        return {name: value for name, value in newest.items() if isinstance(value, int | float)}

    def finished(self, run: PlannedRun) -> bool:
        """Whether a run has reached its budget or given up, and its last state is saved."""
        latest = self.latest(run.name)
        step = latest.get("step", 0)
        if step < run.steps and latest.get("train/gave_up") != 1.0:
            return False
        saved = (self.run(run.name) / "checkpoints").glob("step_*")
        numbers = (re.match(r"step_(\d+)", path.name) for path in saved)
        return any(number is not None and int(number[1]) >= step for number in numbers)

    def last_words(self, name: str, lines: int = 5) -> list[str]:
        """The last lines that a run said."""
        log = _tail(self.log(name)).decode(errors="replace")
        said = [printable(line.rstrip()) for line in log.splitlines()]
        return [line for line in said if line][-lines:]


def group_as_planned(runs: Sequence[Run]) -> tuple[list[Group], str]:
    """Groups of runs and the metric that they are judged by, as their studies say.

    Runs of which one or more belong to no study are named by the settings in which they differ;
    where studies do not agree on a metric, it is the first that the runs reported.
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


def _is_run(value: Any) -> bool:
    """Whether a value that JSON gave is a planned run."""
    match value:
        case {"name": str(), "labels": dict(labels)}:
            settings = value.get("settings", {})
            return isinstance(settings, dict) and all(isinstance(x, str) for x in labels.values())
    return False


def _compared(settings: Settings) -> dict[str, Any]:
    """Settings that make a run what it is."""
    plain: dict[str, Any] = json.loads(
        json.dumps(dict(settings))
    )  # lists for tuples, as it was read
    return {name: value for name, value in plain.items() if name != "steps"}


def _tail(path: Path) -> bytes:
    try:
        with FileIO(open_own(path, os.O_RDONLY)) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            return file.read()
    except FileNotFoundError:
        return b""
