"""Progress of a study: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import Progress as Bars
from rich.progress import Task
from rich.table import Table
from rich.text import Text

from mimex.files import printable
from mimex.study.folder import StudyFolder
from mimex.study.plan import PlannedRun
from mimex.study.sweep import Progress
from mimex.track.display import SPEED_SECONDS

OTHER_LINES = 8
"""Lines of the terminal that are kept free of rows."""

SUMMARY_SECONDS = 60.0
"""Time between two summaries in a log."""

STATES = ("running", "failed", "queued", "done")
"""States of runs, in the order in which they are shown if the terminal is too small."""

STYLES = {"failed": "red", "done": "green", "queued": "dim"}


class StudyTable(ExitStack):
    """Shows the state, speed and score of every run, and the time left."""

    def __init__(
        self,
        folder: StudyFolder,
        runs: Sequence[PlannedRun],
        metric: str,
        jobs: int,
        *,
        console: Console | None = None,
    ) -> None:
        super().__init__()
        self.console = console or Console()
        self.live: Live | None = None
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self.live = Live(console=self.console, refresh_per_second=2)
        self.folder, self.metric, self.jobs = folder, metric, jobs
        # Never drawn: it measures the speed of each run. The score is the latest, since not every
        # row has one.
        self._bars = Bars(
            speed_estimate_period=SPEED_SECONDS, get_time=lambda: time.monotonic(), disable=True
        )
        self._ids = {x.name: self._bars.add_task("", total=x.steps, score="") for x in runs}
        self._states: dict[str, str] = {}
        self._next_summary = time.monotonic() + SUMMARY_SECONDS

    def __enter__(self) -> Self:
        if self.live:
            self.enter_context(self.live)
        return self

    def __call__(self, progress: Progress) -> None:
        """Shows the current state of all runs."""
        order = ("queued", "running", "failed", "done")
        states = {name: state for state in order for name in getattr(progress, state)}
        changed = [name for name in states if self._states.get(name) != states[name]]
        for name in {*changed, *progress.running}:
            row = self.folder.latest(name)
            self._bars.update(self._ids[name], completed=row.get("step", 0.0))
            if self.metric in row:
                self._bars.update(self._ids[name], score=f"{row[self.metric]:.3g}")
        bars = dict(zip(self._ids, self._bars.tasks, strict=True))
        if self.live:
            self.live.update(Group(self._table(states, bars), Text(self.summary(states, bars))))
        else:
            for name in changed:
                if states[name] != "queued" or name in self._states:
                    score = bars[name].fields["score"]
                    scored = f", {self.metric} {score}" if score else ""
                    self._print(f"{name}: {states[name]}{scored}")
            if time.monotonic() >= self._next_summary:
                self._next_summary = time.monotonic() + SUMMARY_SECONDS
                self._print(self.summary(states, bars))
        self._states = states

    def summary(self, states: Mapping[str, str], bars: Mapping[str, Task]) -> str:
        """Returns the number of runs in each state, and the time left."""
        counts = Counter(states.values())
        parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
        speeds = [bar.speed for bar in bars.values() if bar.speed]
        remaining = [
            (bars[name].remaining or 0.0) / (bars[name].speed or sum(speeds) / len(speeds))
            for name, state in states.items()
            if state in ("running", "queued") and speeds
        ]
        if remaining:
            left = max(sum(remaining) / self.jobs, *remaining)
            parts.append(f"about {timedelta(seconds=round(left))} left")
        return ", ".join(parts)

    def _print(self, text: str) -> None:
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def _table(self, states: Mapping[str, str], bars: Mapping[str, Task]) -> Table:
        table = Table("run", "", "steps", "of", "steps/s", escape(self.metric), "left", box=None)
        for column in table.columns[2:]:
            column.justify = "right"
        rows = max(3, self.console.size.height - OTHER_LINES)
        shown = set(sorted(states, key=lambda name: STATES.index(states[name]))[:rows])
        for name, bar in bars.items():
            if name in shown:
                speed = bar.speed if states[name] == "running" else None
                table.add_row(
                    Text(name),
                    states[name],
                    f"{bar.completed:,.0f}",
                    f"{bar.total:,.0f}",
                    f"{speed:,.0f}" if speed else "",
                    bar.fields["score"],
                    str(timedelta(seconds=bar.time_remaining or 0)) if speed else "",
                    style=STYLES.get(states[name]),
                )
        if len(states) > len(shown):
            table.add_row(f"... and {len(states) - len(shown)} more")
        return table
