"""Choice of the number of parallel runs and threads by measurement (`--jobs auto`)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from mimex.files import read_object, replacing
from mimex.study.backends import LocalBackend
from mimex.study.folder import StudyFolder
from mimex.study.plan import PlannedRun

SECONDS, MAX_SECONDS = 10.0, 120.0
"""Time to measure a layout after all of its runs have logged metrics, and time limit with start."""

ENDLESS = {
    **{"steps": 2**40, "futility": 1.0, "track.loggers": []},
    **{"eval.every": 2**40, "eval.episodes": 1, "track.checkpoint_every": 2**40},
}
"""Settings of a measured run."""


class Layout(NamedTuple):
    """Number of parallel runs, and of threads of each."""

    jobs: int
    threads: int

    def __str__(self) -> str:
        return f"{self.jobs} in parallel, {self.threads} thread{'s' * (self.threads > 1)} each"


def layouts(cores: int, runs: int, threads: int | None = None) -> list[Layout]:
    """Returns the layouts of some runs that use all cores, or all with some threads per run."""
    each = [threads] if threads else [2**power for power in range(cores.bit_length())]
    jobs = dict.fromkeys(max(1, min(cores // count, runs)) for count in each)
    return [Layout(count, threads or cores // count) for count in jobs]


def measure(folder: StudyFolder, run: PlannedRun, layout: Layout) -> float:
    """Returns the environment steps per second of parallel copies of a run, all together.

    0 if they end, or log no metrics in time.
    """
    names = [str(index) for index in range(layout.jobs)]
    speeds: dict[str, dict[float, float]] = {name: {} for name in names}  # by step
    with (
        TemporaryDirectory(prefix=".jobs-", dir=folder.path) as path,
        closing(LocalBackend(layout.jobs)) as backend,
    ):
        copies = StudyFolder(Path(path))
        for name in names:
            copy = replace(run, name=name, settings={**run.settings, **ENDLESS})
            backend.start(copies.job(copy, layout.threads))
        end = limit = time.monotonic() + MAX_SECONDS
        while time.monotonic() < end:
            time.sleep(0.1)
            if backend.ended():
                return 0.0
            rows = {name: copies.latest(name) for name in names}
            if not all(rows.values()):  # some are starting, which slows the others down
                continue
            if end == limit:
                end = min(limit, time.monotonic() + SECONDS)
            for name, row in rows.items():
                speeds[name][row["step"]] = row["time/steps_per_second"]
    # The first row of each run may be from the time in which others were starting.
    measured = [list(each.values())[1:] or list(each.values()) for each in speeds.values()]
    return sum(sum(each) / max(len(each), 1) for each in measured)


def choose_layout(
    folder: StudyFolder,
    run: PlannedRun,
    options: Sequence[Layout],
    measure: Callable[[StudyFolder, PlannedRun, Layout], float] = measure,
) -> Layout:
    """Returns the fastest layout, measured with a run and kept in jobs.json of the study."""
    if len(options) == 1:
        return options[0]
    path = folder.path / "jobs.json"
    speeds = read_object(path) if path.exists() else {}
    for option in options:
        key = f"{option.jobs}x{option.threads}"
        if key not in speeds:
            speeds[key] = measure(folder, run, option)
            with replacing(path) as aside:
                aside.write_text(json.dumps(speeds, indent=2) + "\n")
        print(f"{option}: {speeds[key]:,.0f} steps/s")
    return max(options, key=lambda option: float(speeds[f"{option.jobs}x{option.threads}"]))
