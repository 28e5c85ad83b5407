"""Metrics to all loggers of a run, and the one that every run has: a JSON Lines file."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Protocol, SupportsFloat

from mimex.files import append_to
from mimex.types import Metrics

LARGEST_STEP = 2.0**63
"""Steps from here on are none: no setting can ask for so many."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunInfo:
    """The run that a logger is made for.

    Attributes:
        folder: The run folder.
        name: Unique among runs of one project.
        project: The project that the run belongs to, on a server.
        step: The step that the run continues from; 0 for a new one.
        config: The run's settings.
    """

    folder: Path
    name: str
    project: str
    step: int
    config: Mapping[str, Any]


class Sink(Protocol):
    """A logger: keeps rows of metrics somewhere. Those in ``LOGGERS`` are made of a ``RunInfo``."""

    def write(self, step: int, metrics: Metrics) -> None:
        """Logs the metrics of a step."""

    def close(self) -> None:
        """Finishes; nothing is written afterwards."""


class Logger(ExitStack):
    """Gives every row of metrics to every sink.

    Args:
        sinks: Where rows go. They are closed at the end of a ``with`` block.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        super().__init__()
        self.sinks = tuple(sinks)
        for sink in self.sinks:
            self.callback(sink.close)

    def log(self, step: int, metrics: Mapping[str, SupportsFloat]) -> None:
        """Reports metrics by name, such as ``train/success``; numbers of any library will do."""
        if "step" in metrics:
            raise ValueError("metrics has the name 'step', which is the row's own: leave it out.")
        row = {name: float(value) for name, value in metrics.items()}
        for sink in self.sinks:
            sink.write(step, row)


class JSONLines:
    """Appends one JSON object per row to a file, at once: a kill loses no finished row.

    Numbers that are not finite, which JSON has no word for, become null. Where an editor replaces
    the file, rows that the new one lacks at its end are written to it again.

    Args:
        path: The file; made, with its folder, when missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Without a buffer, so that a row which did not fit the disk is not tried again at exit.
        self._file = append_to(path)
        self._folder = os.stat(path.parent)

    def write(self, step: int, metrics: Metrics) -> None:
        finite = {name: x if math.isfinite(x) else None for name, x in metrics.items()}
        row = json.dumps({"step": step} | finite).encode() + b"\n"
        self._follow()
        try:
            self._append(row)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot write the metrics of step {step} to {self.path}: {error.strerror}. "
                "Make room, then run again to continue from the last checkpoint",
            ) from error

    def close(self) -> None:
        try:
            self._follow()
        finally:
            self._file.close()

    def _append(self, content: bytes) -> None:
        if self._file.write(content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _follow(self) -> None:
        """Goes on with the file that is now at the path, if it is another one."""
        try:
            if not os.path.samestat(os.stat(self.path.parent), self._folder):
                return  # the folder was renamed, and the file with it
            if os.path.samestat(os.lstat(self.path), os.fstat(self._file.fileno())):
                return
        except FileNotFoundError:
            if not self.path.parent.exists():
                return
        written = _content(self._file)
        old, self._file = self._file, append_to(self.path)
        old.close()
        there = _content(self._file)
        last = max((step for step, _ in _rows(there)), default=-1)
        lacking = [line for step, line in _rows(written) if step > last]
        _log.warning(
            "%s was replaced while the run is on: %d rows that it lacked are written again.",
            self.path,
            len(lacking),
        )
        if there and not there.endswith(b"\n"):
            lacking.insert(0, b"")
        if lacking:
            self._append(b"\n".join([*lacking, b""]))


def row_step(row: bytes) -> float | None:
    """The step of a row of metrics; None of what is no row."""
    try:
        step = json.loads(row)["step"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
    number = isinstance(step, int | float) and not isinstance(step, bool)
    return step if number and 0 <= step < LARGEST_STEP else None


def _rows(content: bytes) -> list[tuple[float, bytes]]:
    """The rows among the lines of a file, with their steps."""
    steps = ((row_step(line), line) for line in content.split(b"\n"))
    return [(step, line) for step, line in steps if step is not None]


def _content(file: FileIO) -> bytes:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
