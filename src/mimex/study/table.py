"""How a study goes, on the terminal: a live table, or plain lines where nobody watches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from mimex.study.folder import StudyFolder
from mimex.study.plan import PlannedRun
from mimex.study.sweep import Progress
from mimex.track.display import Screen

ROWS_ASIDE = 8
"""Lines of a terminal that are not the table's rows."""

PLAIN_EVERY = 60.0
"""Seconds between two plain lines, which are for logs."""

STATES = ("running", "failed", "queued", "done")
"""In the order of what is left out last, where a terminal is too low for all runs."""


class StudyTable(Screen):
    """Shows the state, pace and score of every run, and the time left.

    Args:
        folder: Where the runs write.
        runs: All of them.
        metric: The score to show.
        jobs: Runs side by side.
        console: Where to write; the terminal if left out.
    """

    def __init__(
        self,
        folder: StudyFolder,
        runs: Sequence[PlannedRun],
        metric: str,
        jobs: int,
        *,
        console: Console | None = None,
    ) -> None:
        super().__init__(console, refresh_per_second=2)
        self.folder, self.metric, self.jobs = folder, metric, jobs
        self.runs = {run.name: run for run in runs}
        self._rows: dict[str, dict[str, float]] = {}
        self._first: dict[str, tuple[float, float]] = {}  # when a run was seen first, at which step
        self._speeds: dict[str, float] = {}  # steps/s
        self._scores: dict[str, float] = {}  # the newest: not every row has one
        self._states: dict[str, str] = {}
        self._next_line = time.monotonic() + PLAIN_EVERY

    def __call__(self, progress: Progress) -> None:
        """Shows the runs as they are now."""
        states = dict.fromkeys(progress.queued, "queued")
        states |= dict.fromkeys(progress.running, "running")
        states |= dict.fromkeys(progress.failed, "failed")
        states |= dict.fromkeys(progress.done, "done")
        changed = [name for name in states if self._states.get(name) != states[name]]
        for name in {*changed, *progress.running}:
            self._look(name, states[name])
        if self.live:
            self.live.update(Group(self._table(states), Text(self.summary(states))))
        else:
            for name in changed:
                if states[name] != "queued" or name in self._states:
                    self.note(f"{name}: {states[name]}{self._score(name, f', {self.metric} ')}")
            if time.monotonic() >= self._next_line:
                self._next_line = time.monotonic() + PLAIN_EVERY
                self.note(self.summary(states))
        self._states = states

    def summary(self, states: dict[str, str]) -> str:
        """How many runs are in which state, and the time left."""
        counts = [f"{list(states.values()).count(state)} {state}" for state in STATES]
        left = self._left(states)
        ends = "" if left is None else f", about {timedelta(seconds=round(left))} left"
        return ", ".join(count for count in counts if not count.startswith("0 ")) + ends

    def _look(self, name: str, state: str) -> None:
        self._rows[name] = row = self.folder.latest(name)
        if row.get(self.metric) is not None:
            self._scores[name] = row[self.metric]
        if state == "running" and "step" in row:
            now, step = time.monotonic(), row["step"]
            began, first = self._first.setdefault(name, (now, step))
            if step > first:
                self._speeds[name] = (step - first) / (now - began)

    def _left(self, states: dict[str, str]) -> float | None:
        """Seconds until all is done, if known; runs not yet seen take the others' mean pace."""
        if not self._speeds:
            return None
        mean = sum(self._speeds.values()) / len(self._speeds)
        seconds = [
            self._steps_left(name) / self._speeds.get(name, mean)
            for name, state in states.items()
            if state in ("running", "queued")
        ]
        return max(sum(seconds) / self.jobs, *seconds) if seconds else None

    def _steps_left(self, name: str) -> float:
        return max(0.0, self.runs[name].steps - self._rows[name].get("step", 0.0))

    def _table(self, states: dict[str, str]) -> Table:
        table = Table("run", "", "steps", "of", "steps/s", escape(self.metric), "left", box=None)
        for column in table.columns[2:]:
            column.justify = "right"
        room = max(3, self.console.size.height - ROWS_ASIDE)
        ordered = sorted(states, key=lambda name: STATES.index(states[name]))
        shown = set(ordered[:room])
        for name in self.runs:
            if name not in shown:
                continue
            state, speed = states[name], self._speeds.get(name)
            pace, left = "", ""
            if state == "running" and speed:
                pace = f"{speed:,.0f}"
                left = str(timedelta(seconds=round(self._steps_left(name) / speed)))
            table.add_row(
                Text(name),
                state,
                f"{self._rows[name].get('step', 0):,.0f}",
                f"{self.runs[name].steps:,}",
                pace,
                self._score(name),
                left,
                style={"failed": "red", "done": "green", "queued": "dim"}.get(state),
            )
        if len(states) > len(shown):
            table.add_row(f"... and {len(states) - len(shown)} more")
        return table

    def _score(self, name: str, before: str = "") -> str:
        value = self._scores.get(name)
        return "" if value is None else f"{before}{value:.3g}"
