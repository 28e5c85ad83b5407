"""The run folder: everything that a run leaves, and all that continuing or studying it needs."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mimex.files import replacing
from mimex.train.about import about
from mimex.train.flat import flat_settings


class FolderInUseError(RuntimeError):
    """Another process is writing to the run folder."""


class OtherConfigError(ValueError):
    """The run in the folder was started with other settings."""


class RunFolder:
    """A run's folder: config.json, about.json, metrics.jsonl, checkpoints/ and videos/.

    Reading needs no ceremony. To write, enter it (``with RunFolder(path) as run``), which locks
    it until the block or the process ends, however it ends; then call ``claim``.

    Args:
        path: The folder; made when entered.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.videos = path / "videos"
        self._lock: int | None = None

    def __enter__(self) -> Self:
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(f"{self.path} is a file; expected a folder for the run.")
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(lock, 32).decode() or "unknown"
            os.close(lock)
            raise FolderInUseError(
                f"{self.path} is in use by another run (process {owner}): wait for its end, stop "
                "it, or choose another folder."
            ) from error
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
        self._lock = lock
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The file stays: to remove it would let a third process lock another one of that name.
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def config(self) -> dict[str, Any] | None:
        """The settings that the run was started with; None in a new folder."""
        path = self.path / "config.json"
        if not path.exists():
            return None
        try:
            config: dict[str, Any] = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(
                f"{path} is not JSON ({error}): restore it, or choose another folder."
            ) from error
        return config

    def claim(self, config: Mapping[str, Any], force_keys: Iterable[str] = ()) -> None:
        """Makes this the folder of a run with these settings: a new one, or its continuation.

        Args:
            config: Nested settings, of JSON-able values and paths.
            force_keys: Dotted names of settings that may differ from the run's start, such as
                ``steps``; a name stands also for all below it. The new values are written.

        Raises:
            OtherConfigError: If any other setting differs; the message shows them all.
        """
        if self._lock is None:
            raise RuntimeError("claim() needs the lock: use `with RunFolder(path) as run`.")
        text = json.dumps(config, indent=2, default=os.fspath)
        before = self.config
        if before is not None:
            self._require_same(before, json.loads(text), tuple(force_keys))
        _write(self.path / "config.json", text)
        self._record_start()

    def truncate_metrics(self, after_step: int | None) -> None:
        """Cuts the metrics from the first row on that is newer than a step, or half-written.

        The run that continues from that step makes these rows again. For this the rows of a step
        have to be written before its checkpoint.

        Args:
            after_step: The step of the checkpoint; None if there is none, which cuts all.
        """
        if not self.metrics.exists():
            return
        keep = 0
        with self.metrics.open("rb") as rows:
            for row in rows:
                if after_step is None or _step(row) > after_step:
                    break
                keep += len(row)
        os.truncate(self.metrics, keep)

    def _require_same(
        self, before: dict[str, Any], now: dict[str, Any], force_keys: tuple[str, ...]
    ) -> None:
        old, new = flat_settings(before), flat_settings(now)
        differences = [
            f"  {name}: {old.get(name, 'not set')} there, {new.get(name, 'not set')} now"
            for name in sorted(old.keys() | new.keys())
            if old.get(name) != new.get(name)
            and not any(name == key or name.startswith(f"{key}.") for key in force_keys)
        ]
        if differences:
            raise OtherConfigError(
                f"{self.path} holds a run with other settings:\n"
                + "\n".join(differences)
                + "\nGive the same settings to continue it, or choose another folder."
            )

    def _record_start(self) -> None:
        path = self.path / "about.json"
        record = about()
        if path.exists():
            first = json.loads(path.read_text())
            record = first | {"resumed": [*first.get("resumed", []), record]}
        _write(path, json.dumps(record, indent=2))


def _step(row: bytes) -> float:
    """The step of a row of metrics; infinite if a kill or a power cut left it unreadable."""
    try:
        return float(json.loads(row)["step"]) if row.endswith(b"\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf


def _write(path: Path, text: str) -> None:
    with replacing(path) as aside:
        aside.write_text(text + "\n")
