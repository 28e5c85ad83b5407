"""Progress on the terminal: a live display, or plain lines where nobody watches."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self, TypeVar

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
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

PACE_SECONDS, PACE_SHARE = 60.0, 0.25
"""The pace is measured over so many seconds, and in long runs over the last share of their time:
long enough to hold evaluations, and soon forgetting a beginning that is faster than the rest."""

TICK_SECONDS = 0.5
"""Between two updates, the least time after which something is shown again."""

QUIET_SECONDS = 60.0
"""Between two updates, the time after which a plain line tells that the run is alive."""

Item = TypeVar("Item")


class Display:
    """Shows how far a run is, how fast it goes, and its latest metrics.

    Args:
        total_steps: Where the run ends.
        title: What runs.
        unit: What is counted.
        start_step: Where it starts: above 0 when it continues.
        plain_every: Seconds between two plain lines, which are for logs.
        console: Where to write; the terminal if left out.
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
        self.total_steps, self.title, self.unit = total_steps, title, unit
        self._console = console or Console()
        self._metrics: dict[str, float] = {}
        self._began = time.monotonic()
        self._pace: deque[tuple[float, int]] = deque([(self._began, start_step)])
        self._step, self._doing = start_step, ""
        self._plain_every = plain_every
        self._next_line, self._last_line = -math.inf, self._began
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
            self._task = self._bar.add_task(escape(title), total=total_steps, completed=start_step)
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
            self._show(time.monotonic())
            self._live.stop()
        elif self._untold:
            self._line(self._summary())

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shows a step and its metrics; metrics not given keep their latest value."""
        self._metrics |= metrics
        self._step, self._doing, self._untold = step, "", True
        now = time.monotonic()
        self._show(now)
        if not self._live and now >= self._next_line:
            self._line(self._summary())
            self._next_line = now + self._plain_every
            self._untold = False

    def advance(self, step: int, doing: str = "") -> None:
        """Shows a step between two updates, and what goes on beside making steps; costs little."""
        self._step, self._doing = step, doing
        now = time.monotonic()
        if now < self._pace[-1][0] + TICK_SECONDS:
            return
        self._show(now)
        if not self._live and now >= self._last_line + QUIET_SECONDS:
            self._line(self._summary())

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """Gives the items one by one, each a step."""
        for count, item in enumerate(items, 1):
            yield item
            self.advance(count)

    def _show(self, now: float) -> None:
        self._pace.append((now, self._step))
        since = now - max(PACE_SECONDS, PACE_SHARE * (now - self._began))
        while len(self._pace) > 2 and self._pace[1][0] <= since:
            self._pace.popleft()
        if self._live:
            self._bar.update(self._task, completed=self._step)
            self._live.update(self._picture())

    def note(self, text: str) -> None:
        """Shows a line that stays."""
        self._line(text)

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _pace_words(self) -> str:
        (since, start), (now, step) = self._pace[0], self._pace[-1]
        words = f"{step:,} of {self.total_steps:,} {self.unit}"
        if step > start and now > since:
            speed = (step - start) / (now - since)
            left = timedelta(seconds=round(max(self.total_steps - step, 0) / speed))
            words += f", {_rounded(speed)} {self.unit}/s, {left} left"
        return f"{words}, {self._doing}" if self._doing else words

    def _summary(self) -> str:
        share = min(self._pace[-1][1] / self.total_steps, 1.0) if self.total_steps else 1.0
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


def _rounded(speed: float) -> str:
    return f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"
