"""Progress on the terminal: a live display, or plain lines where nobody watches."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from datetime import timedelta
from typing import Any, Self, TextIO, TypeVar, cast

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mimex.files import printable

HEADLINES = (
    "train/success",
    "train/return",
    "eval/success",
    "eval/return",
    "bonus/mean",
    "bonus/share",
    "pretrain/loss",
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


class Output:
    """A text stream whose reader may go away: then its words are lost, and nothing else.

    Args:
        file: Standard output, as a pipe that is closed early or a device that gets full.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Writes a text, if it can be."""
        with self._surviving():
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Hands over what was written, if it can be."""
        with self._surviving():
            self._file.flush()

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # What is written from now on goes nowhere, at the end of Python too.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())
            os.close(nowhere)
            with suppress(OSError):  # standard error may be the same pipe
                print(
                    f"mimex: standard output cannot be written ({error.strerror}): going on "
                    "without it",
                    file=sys.stderr,
                    flush=True,
                )


@contextmanager
def lasting_output() -> Iterator[None]:
    """In this block standard output that cannot be written raises no error."""
    if sys.stdout is None:  # closed from the start, and never written
        yield
        return
    with redirect_stdout(cast("TextIO", Output(sys.stdout))):
        yield


class Screen(ExitStack):
    """A live picture on a terminal, which is given back at the end; elsewhere lines of text.

    Args:
        console: Where to write; the terminal if left out.
        refresh_per_second: How often the picture is drawn.
    """

    def __init__(self, console: Console | None, refresh_per_second: float) -> None:
        super().__init__()
        self.console = console or Console()
        self.live: Live | None = None
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self.live = Live(console=self.console, refresh_per_second=refresh_per_second)

    def __enter__(self) -> Self:
        if self.live:
            self.enter_context(self.live)
        return self

    def note(self, text: str) -> None:
        """Shows a line that stays."""
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


class Display(Screen):
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
        super().__init__(console, refresh_per_second=4)
        self.total_steps, self.title, self.unit = total_steps, title, unit
        self._metrics: dict[str, float] = {}
        self._began = time.monotonic()
        self._pace: deque[tuple[float, int]] = deque([(self._began, start_step)])
        self._step, self._doing = start_step, ""
        self._plain_every = plain_every
        self._next_line, self._last_line = -math.inf, self._began
        self._untold = False

    def __enter__(self) -> Self:
        super().__enter__()
        self.callback(self._finish)
        if self.live:
            self.live.update(self._picture())
        else:
            self.note(self.title)
        return self

    def _finish(self) -> None:
        if self.live:
            self._show(time.monotonic())
        elif self._untold:
            self.note(self._summary())

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shows a step and its metrics; metrics not given keep their latest value."""
        self._metrics |= metrics
        self._step, self._doing, self._untold = step, "", True
        now = time.monotonic()
        self._show(now)
        if not self.live and now >= self._next_line:
            self.note(self._summary())
            self._next_line = now + self._plain_every
            self._untold = False

    def advance(self, step: int, doing: str = "") -> None:
        """Shows a step between two updates, and what goes on beside making steps; costs little."""
        self._step, self._doing = step, doing
        now = time.monotonic()
        if now < self._pace[-1][0] + TICK_SECONDS:
            return
        self._show(now)
        if not self.live and now >= self._last_line + QUIET_SECONDS:
            self.note(self._summary())

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
        if self.live:
            self.live.update(self._picture())

    def note(self, text: str) -> None:
        self._last_line = time.monotonic()
        super().note(text)

    def _pace_words(self) -> str:
        (since, start), (now, step) = self._pace[0], self._pace[-1]
        words = f"{step:,} of {self.total_steps:,} {self.unit}"
        if step > start and now > since:
            speed = (step - start) / (now - since)
            left = timedelta(seconds=round(max(self.total_steps - step, 0) / speed))
            words += f", {_rounded(speed)} {self.unit}/s, {left} left"
        return f"{words}, {self._doing}" if self._doing else words

    def _share(self) -> float:
        return min(self._pace[-1][1] / self.total_steps, 1.0) if self.total_steps else 1.0

    def _summary(self) -> str:
        told = [f"{name} {self._metrics[name]:.4g}" for name in HEADLINES if name in self._metrics]
        return " | ".join([f"{self._share():4.0%} {self._pace_words()}", *told])

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
        bar = Table.grid(padding=(0, 1), expand=True)
        share = self._share()
        bar.add_row(Text(self.title, "bold"), ProgressBar(1.0, share), f"{share:.0%}")
        return Group(bar, Text(f"{self._pace_words()}\n"), Columns(tables.values()))


def _rounded(speed: float) -> str:
    return f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"
