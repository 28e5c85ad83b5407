"""metrics.jsonl: one JSON object per row of metrics."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from io import FileIO
from pathlib import Path
from typing import Any

from mimex.files import append_to
from mimex.types import Metrics

MAX_STEP = 2**63
"""Steps from here on are invalid: no setting can request as many."""

_log = logging.getLogger(__name__)


class JSONLines:
    """Appends rows to a file, unbuffered: a kill loses no finished row.

    Values that are not finite become null. If an editor replaces the file, missing rows at the end
    of the new file are written again.

    Args:
        path: The file; created with its folder if missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = append_to(path)
        self._folder = path.parent.stat()

    def write(self, step: int, metrics: Metrics) -> None:
        finite = {name: x if math.isfinite(x) else None for name, x in metrics.items()}
        row = json.dumps({"step": step} | finite).encode() + b"\n"
        self._reopen_if_replaced()
        try:
            self._append(row)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot write the metrics of step {step} to {self.path}: {error.strerror}. "
                "Free some space, then run again to resume from the last checkpoint",
            ) from error

    def close(self) -> None:
        try:
            self._reopen_if_replaced()
        finally:
            self._file.close()

    def _append(self, content: bytes) -> None:
        if self._file.write(content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _reopen_if_replaced(self) -> None:
        folder, path = self.path.parent, self.path
        if not folder.exists() or not os.path.samestat(folder.stat(), self._folder):
            return  # the folder was renamed, and the file with it
        if os.path.lexists(path) and os.path.samestat(path.lstat(), os.fstat(self._file.fileno())):
            return
        written = _content(self._file)
        old, self._file = self._file, append_to(self.path)
        old.close()
        existing = _content(self._file)
        last = max((step for step, _ in _rows(existing)), default=-1)
        missing = [line + b"\n" for step, line in _rows(written) if step > last]
        _log.warning(
            "%s was replaced during the run: %d missing rows are written again.", path, len(missing)
        )
        if existing and not existing.endswith(b"\n"):
            missing.insert(0, b"\n")
        self._append(b"".join(missing))


def read_row(line: bytes) -> dict[str, Any] | None:
    """Parses a row of metrics; None if the line is not one."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = row.get("step") if isinstance(row, dict) else None
    if not isinstance(step, int | float) or isinstance(step, bool):
        return None
    return row if 0 <= step < MAX_STEP else None


def row_step(line: bytes) -> float | None:
    """Returns the step of a row of metrics; None if the line is not one."""
    row = read_row(line)
    return None if row is None else float(row["step"])


def _rows(content: bytes) -> list[tuple[float, bytes]]:
    """The rows of a file with their steps; other lines are skipped."""
    steps = ((row_step(line), line) for line in content.split(b"\n"))
    return [(step, line) for step, line in steps if step is not None]


def _content(file: FileIO) -> bytes:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
