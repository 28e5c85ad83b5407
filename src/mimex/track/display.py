"""Progress on the terminal: a live display, or plain lines where nobody watches."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

HEADLINES = (
    "train/success",
    "train/return",
    "eval/success",
    "eval/return",
    "bonus/mean",
    "bonus/share",
)
"""What a plain line tells, of the metrics that are there."""

PACE_UPDATES = 20
"""Updates that the pace is measured over."""


class Display:
    """Shows how far a run is, how fast it goes, and its latest metrics.

    Args:
        total_steps: Where the run ends.
        title: What runs.
        start_step: Where it starts: above 0 when it continues.
        plain_every: Seconds between two plain lines, which are for logs.
        console: Where to write; the terminal if left out.
    """

    def __init__(
        self,
        total_steps: int,
        title: str,
        *,
        start_step: int = 0,
        plain_every: float = 10.0,
        console: Console | None = None,
    ) -> None:
        self.total_steps = total_steps
        self.title = title
        self._console = console or Console()
        self._metrics: dict[str, float] = {}
        self._pace: deque[tuple[float, int]] = deque(
            [(time.monotonic(), start_step)], maxlen=PACE_UPDATES
        )
        self._plain_every = plain_every
        self._next_line = -math.inf
        self._untold = False
        self._live: Live | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=None),
                TaskProgressColumn(),
                console=self._console,
                expand=True,
            )
            self._task = self._bar.add_task(title, total=total_steps, completed=start_step)
            self._live = Live(self._picture(), console=self._console, refresh_per_second=4)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        else:
            self._line(self.title)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()
        elif self._untold:
            self._line(self._summary())

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shows a step and its metrics; metrics not given keep their latest value."""
        self._metrics |= metrics
        self._pace.append((time.monotonic(), step))
        if self._live:
            self._bar.update(self._task, completed=step)
            self._live.update(self._picture())
            return
        self._untold = True
        if time.monotonic() >= self._next_line:
            self._line(self._summary())
            self._next_line = time.monotonic() + self._plain_every
            self._untold = False

    def note(self, text: str) -> None:
        """Shows a line that stays."""
        self._line(text)

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _pace_words(self) -> str:
        (since, start), (now, step) = self._pace[0], self._pace[-1]
        words = f"{step:,} of {self.total_steps:,} steps"
        if step <= start or now <= since:
            return words
        speed = (step - start) / (now - since)
        left = timedelta(seconds=round(max(self.total_steps - step, 0) / speed))
        return f"{words}, {speed:,.0f} steps/s, {left} left"

    def _summary(self) -> str:
        share = self._pace[-1][1] / self.total_steps if self.total_steps else 1.0
        told = [f"{name} {self._metrics[name]:.4g}" for name in HEADLINES if name in self._metrics]
        return " | ".join([f"{share:4.0%} {self._pace_words()}", *told])

    def _picture(self) -> Group:
        """The bar, and below it one small table for each first word of the metrics' names."""
        tables: dict[str, Table] = {}
        for name, value in self._metrics.items():
            group, _, rest = name.rpartition("/")
            if group == "time":
                continue  # told below the bar
            if group not in tables:
                tables[group] = Table(group, "", box=None, header_style="bold")
                tables[group].columns[1].justify = "right"
            tables[group].add_row(rest, f"{value:.4g}")
        return Group(self._bar, Text(f"{self._pace_words()}\n"), Columns(tables.values()))
