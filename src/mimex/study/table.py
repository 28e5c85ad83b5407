"""Progress of a study: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from mimex.files import printable
from mimex.study.folder import StudyFolder
from mimex.study.plan import PlannedRun
from mimex.study.sweep import Progress

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
        self.budgets = {run.name: run.steps for run in runs}
        self._steps: dict[str, float] = {}
        self._first: dict[str, tuple[float, float]] = {}  # time and step when first seen running
        self._speeds: dict[str, float] = {}  # steps/s
        self._scores: dict[str, str] = {}  # the latest, since not every row has one
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
            self._update(name, running=states[name] == "running")
        if self.live:
            self.live.update(Group(self._table(states), Text(self.summary(states))))
        else:
            for name in changed:
                if states[name] != "queued" or name in self._states:
                    score = self._scores.get(name)
                    self._print(f"{name}: {states[name]}{f', {self.metric} {score}' * bool(score)}")
            if time.monotonic() >= self._next_summary:
                self._next_summary = time.monotonic() + SUMMARY_SECONDS
                self._print(self.summary(states))
        self._states = states

    def summary(self, states: dict[str, str]) -> str:
        """Returns the number of runs in each state, and the time left."""
        counts = Counter(states.values())
        parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
        if self._speeds:
            mean = sum(self._speeds.values()) / len(self._speeds)  # for runs of unknown speed
            open_runs = [name for name, state in states.items() if state in ("running", "queued")]
            seconds = [self._seconds_left(name, mean) for name in open_runs]
            if seconds:
                left = max(sum(seconds) / self.jobs, *seconds)
                parts.append(f"about {timedelta(seconds=round(left))} left")
        return ", ".join(parts)

    def _print(self, text: str) -> None:
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def _update(self, name: str, *, running: bool) -> None:
        row = self.folder.latest(name)
        self._steps[name] = row.get("step", 0.0)
        if self.metric in row:
            self._scores[name] = f"{row[self.metric]:.3g}"
        if running and "step" in row:
            now, step = time.monotonic(), row["step"]
            start, first = self._first.setdefault(name, (now, step))
            if step > first:
                self._speeds[name] = (step - first) / (now - start)

    def _seconds_left(self, name: str, default_speed: float) -> float:
        steps = max(0.0, self.budgets[name] - self._steps[name])
        return steps / self._speeds.get(name, default_speed)

    def _table(self, states: dict[str, str]) -> Table:
        table = Table("run", "", "steps", "of", "steps/s", escape(self.metric), "left", box=None)
        for column in table.columns[2:]:
            column.justify = "right"
        rows = max(3, self.console.size.height - OTHER_LINES)
        shown = set(sorted(states, key=lambda name: STATES.index(states[name]))[:rows])
        for name in filter(shown.__contains__, self.budgets):
            speed = self._speeds.get(name) if states[name] == "running" else None
            left = timedelta(seconds=round(self._seconds_left(name, speed))) if speed else ""
            table.add_row(
                Text(name),
                states[name],
                f"{self._steps[name]:,.0f}",
                f"{self.budgets[name]:,}",
                f"{speed:,.0f}" if speed else "",
                self._scores.get(name, ""),
                str(left),
                style=STYLES.get(states[name]),
            )
        if len(states) > len(shown):
            table.add_row(f"... and {len(states) - len(shown)} more")
        return table
