"""Training progress: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from datetime import timedelta
from typing import Any, Self, TextIO, TypeVar, cast

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from mimex.files import printable

PLAIN_METRICS = (
    "train/success",
    "train/return",
    "eval/success",
    "eval/return",
    "bonus/mean",
    "bonus/share",
    "pretrain/loss",
)
"""Metrics in a plain line."""

SPEED_SECONDS = 600.0
"""The speed is averaged over this time, which includes some evaluations."""

REFRESH_SECONDS = 1.0
"""Minimum time between two refreshes by ``advance``."""

QUIET_SECONDS = 60.0
"""Time without output after which ``advance`` prints a plain line."""

Item = TypeVar("Item")


class Display(ExitStack):
    """Shows the progress of a run, its speed and its latest metrics.

    Args:
        total_steps: Length of the run.
        title: Name of the run.
        unit: What is counted.
        start_step: First step; above 0 for a resumed run.
        plain_every: Minimum seconds between two plain lines.
        console: Where to write; standard output by default.
    """

    def __init__(
        self,
        total_steps: int,
        title: str,
        *,
        unit: str = "steps",
        start_step: int = 0,
        plain_every: float = 10.0,
        console: Console | None = None,
    ) -> None:
        super().__init__()
        self.console = console or Console()
        self.total_steps, self.title, self.unit = total_steps, title, unit
        name = TextColumn("{task.description}", style="bold", markup=False)
        self._bar = Progress(
            *(name, BarColumn(None), TaskProgressColumn()),
            expand=True,
            speed_estimate_period=SPEED_SECONDS,
            get_time=lambda: time.monotonic(),
        )
        self._bar.add_task(title, total=total_steps, completed=start_step)
        self._step, self._activity = start_step, ""
        self._metrics: dict[str, float] = {}
        self._plain_every = plain_every
        self._next_line, self._last_line = -math.inf, time.monotonic()
        self._unprinted = False  # metrics that no plain line has shown
        self._live: Live | None = None
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self._live = Live(
                console=self.console, refresh_per_second=4, get_renderable=self._render
            )
        self._refresh()

    def __enter__(self) -> Self:
        if self._live:
            self.enter_context(self._live)
            self.callback(self._refresh)
        else:
            self.note(self.title)
            self.callback(lambda: self.note(self._line()) if self._unprinted else None)
        return self

    def note(self, text: str) -> None:
        """Prints a line that stays on the screen."""
        self._last_line = time.monotonic()
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shows a step and its metrics; other metrics keep their latest value."""
        self._metrics = {**self._metrics, **metrics}  # new, since another thread may render it
        self._step, self._activity, self._unprinted = step, "", True
        self._refresh()
        if not self._live and (now := time.monotonic()) >= self._next_line:
            self.note(self._line())
            self._next_line, self._unprinted = now + self._plain_every, False

    def advance(self, step: int, activity: str = "") -> None:
        """Shows a step between two updates, and the current activity; cheap to call."""
        self._step, self._activity = step, activity
        if time.monotonic() >= self._refreshed + REFRESH_SECONDS:
            self._refresh()
            if not self._live and self._refreshed >= self._last_line + QUIET_SECONDS:
                self.note(self._line())

    def track(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yields the items, each of which is a step."""
        for count, item in enumerate(items, 1):
            yield item
            self.advance(count)

    def _refresh(self) -> None:
        self._refreshed = time.monotonic()
        [task] = self._bar.tasks
        self._bar.advance(task.id, self._step - task.completed)

    def _status(self) -> str:
        """Steps, speed, time left and activity."""
        text = f"{self._step:,} of {self.total_steps:,} {self.unit}"
        [task] = self._bar.tasks
        if speed := task.speed:
            rounded = f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"
            left = timedelta(seconds=task.time_remaining or 0.0)
            text += f", {rounded} {self.unit}/s, {left} left"
        return f"{text}, {self._activity}" if self._activity else text

    def _line(self) -> str:
        progress = min(self._step / self.total_steps, 1.0) if self.total_steps else 1.0
        metrics = [f"{n} {self._metrics[n]:.4g}" for n in PLAIN_METRICS if n in self._metrics]
        return " | ".join([f"{progress:4.0%} {self._status()}", *metrics])

    def _render(self) -> Group:
        """The bar, the status, and one table of metrics per prefix of their names."""
        tables: dict[str, Table] = {}
        for name, value in self._metrics.items():
            prefix, _, rest = name.rpartition("/")
            if prefix == "time":  # the status has the speed
                continue
            if prefix not in tables:
                tables[prefix] = Table(prefix, "", box=None, header_style="bold")
                tables[prefix].columns[1].justify = "right"
            tables[prefix].add_row(rest, f"{value:.4g}")
        return Group(self._bar, Text(f"{self._status()}\n"), Columns(tables.values()))


class Output:
    """A text stream that drops its output once its file, such as a closed pipe, is not writable."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        self._attempt(lambda: self._file.write(text))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._file.flush)

    def _attempt(self, operation: Callable[[], Any]) -> None:
        try:
            operation()
        except OSError as error:
            # Redirected for the rest of the process: Python flushes the file again at exit.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._file.fileno())
            os.close(null)
            reason = f"standard output cannot be written ({error.strerror})"
            with suppress(OSError):  # standard error may be the same pipe
                print(f"mimex: {reason}: continuing without it", file=sys.stderr, flush=True)


@contextmanager
def optional_stdout() -> Iterator[None]:
    """In this block, an unwritable standard output raises no error."""
    if sys.stdout is None:  # closed from the start
        yield
        return
    with redirect_stdout(cast("TextIO", Output(sys.stdout))):
        yield
