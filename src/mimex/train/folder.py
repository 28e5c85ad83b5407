"""The run folder: everything that a run leaves, and all that continuing or studying it needs."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mimex.files import ASIDE, append_to, open_own, read_object, read_own, replacing
from mimex.track.sinks import row_step
from mimex.train.about import about, versions
from mimex.train.flat import flat_settings

FOLDERS = (
    "checkpoints",
    "figures",
    "logs",
    "novelty",
    "reconstructions",
    "replay",
    "runs",
    "tensorboard",
    "videos",
)
"""Folders that a run, or a study, makes inside its own."""


class FolderInUseError(RuntimeError):
    """Another process is writing to the run folder."""


class FolderLostError(RuntimeError):
    """The run folder was renamed or removed while a run wrote to it."""


class LostCheckpointsError(RuntimeError):
    """The run folder has metrics of a run whose checkpoints are gone."""


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
        self.rows = 0  # of the metrics, counted by whoever writes them
        self._locks: tuple[int, int] | None = None  # the folder itself, and a file in it

    def __enter__(self) -> Self:
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(f"{self.path} is a file; expected a folder for the run.")
        self.path.mkdir(parents=True, exist_ok=True)
        for name in FOLDERS:
            if (self.path / name).is_symlink():
                raise OSError(
                    f"{self.path / name} is a symbolic link, but a run writes into its own folder "
                    "only: remove the link, or choose another folder."
                )
        note = open_own(self.path / ".lock", os.O_RDWR | os.O_CREAT)
        self._locks = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY), note
        try:
            for descriptor in self._locks:
                _lock(descriptor)
        except BlockingIOError as error:
            owner = os.read(note, 32).decode(errors="replace") or "unknown"
            self.__exit__(None, None, None)
            raise FolderInUseError(
                f"{self.path} is in use by another run (process {owner}): wait for its end, stop "
                "it, or choose another folder."
            ) from error
        os.ftruncate(note, 0)
        os.write(note, str(os.getpid()).encode())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The file stays: to remove it would let a third process lock another one of that name.
        for descriptor in self._locks or ():
            os.close(descriptor)
        self._locks = None

    def require_same(self) -> None:
        """Raises an error if the path no longer leads to the folder that was entered.

        To write on would split the run in two.
        """
        assert self._locks is not None
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self._locks[0]))
        except FileNotFoundError:
            same = False
        if not same:
            raise FolderLostError(
                f"{self.path} is no longer the folder that this run writes to: it was renamed or "
                "removed. Rename it back and run again to continue from its last checkpoint."
            )

    @property
    def config(self) -> dict[str, Any] | None:
        """The settings that the run was started with; None in a new folder."""
        path = self.path / "config.json"
        return read_object(path) if os.path.lexists(path) else None

    def check(
        self,
        config: Mapping[str, Any],
        force_keys: Iterable[str] = (),
        defaults: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Refuses a run with these settings that is not the one in the folder; changes nothing.

        Args:
            config: Nested settings, of JSON-able values and paths.
            force_keys: Dotted names of settings that may differ from the run's start, such as
                ``steps``; a name stands also for all below it. The new values are written.
            defaults: Nested settings that a run had whose folder does not name them: it was begun
                before there were such.

        Returns:
            What whoever continues the run should know.

        Raises:
            OtherConfigError: If any other setting differs; the message shows them all. Also if
                there is a run whose settings are not known.
        """
        before = self.config
        if before is not None:
            now, usual = (
                json.loads(json.dumps(settings, default=os.fspath))  # as after writing and reading
                for settings in (config, defaults or {})
            )
            self._require_equal(before, now, tuple(force_keys), usual)
        elif self.metrics.exists() or self.checkpoints.exists():
            raise OtherConfigError(
                f"{self.path} holds a run, but its config.json is gone: restore that file, or "
                "choose another folder."
            )
        begun = self._begun()
        others = [
            f"{name} {begun['versions'].get(name)} (now {now})"
            for name, now in versions().items()
            if begun is not None and begun["versions"].get(name) != now
        ]
        return [f"the run began with {', '.join(others)}: its numbers may differ"] * bool(others)

    def claim(
        self,
        config: Mapping[str, Any],
        force_keys: Iterable[str] = (),
        defaults: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Makes this the folder of a run with these settings: a new one, or its continuation.

        Takes, returns and raises what ``check`` does. All that may refuse the run comes before, so
        that a run that does not start changes nothing.
        """
        if self._locks is None:
            raise RuntimeError("claim() needs the lock: use `with RunFolder(path) as run`.")
        notes = self.check(config, force_keys, defaults)
        begun, now = self._begun(), about()
        start = now if begun is None else begun | {"resumed": [*begun["resumed"], now]}
        for name, content in (("config.json", config), ("about.json", start)):
            with replacing(self.path / name) as aside:
                aside.write_text(json.dumps(content, indent=2, default=os.fspath) + "\n")
        return notes

    def restore_metrics(self, saved: tuple[int, int | None] | None, first_save: int) -> list[str]:
        """Brings the metrics to where a checkpoint was; the run makes later rows again.

        For this the rows of a step have to reach the disk before its checkpoint. Lines that are no
        rows are moved to metrics.damaged.jsonl.

        Args:
            saved: The checkpoint's step, and how many rows there were (None if it does not say);
                None without a checkpoint.
            first_save: The step from which on a row is followed by a checkpoint.

        Returns:
            What whoever continues the run should know.

        Raises:
            LostCheckpointsError: If there are rows of a run whose checkpoints are gone.
        """
        content = read_own(self.metrics) if os.path.lexists(self.metrics) else b""
        *lines, tail = content.split(b"\n")
        if row_step(tail) is not None:
            lines.append(tail)  # whole but for its end; otherwise a kill has cut it short
        steps = [row_step(line) for line in lines]
        told = [step for step in steps if step is not None]
        if saved is None:
            return self._begin_metrics(told, first_save)
        step, rows = saved
        rows = rows if isinstance(rows, int) and rows >= 0 else None  # as of a checkpoint without
        kept = [
            line for line, at in zip(lines, steps, strict=True) if at is not None and at <= step
        ][:rows]
        damaged = [line for line, at in zip(lines, steps, strict=True) if at is None and line]
        notes = []
        if damaged:
            path = self.metrics.with_suffix(".damaged.jsonl")
            with append_to(path) as file:
                file.write(b"\n".join([*damaged, b""]))
            notes.append(f"{len(damaged)} lines of {self.metrics} are no rows: moved to {path}")
        lost = (min(step, 1) if rows is None else rows) - len(kept)
        if lost > 0:
            count = "all" if rows is None else lost
            notes.append(
                f"{self.metrics} lacks {count} rows of those up to step {step:,}, which are not "
                "made again"
            )
        whole = b"\n".join([*kept, b""])
        if not kept:
            self.metrics.unlink(missing_ok=True)
        elif whole != content:
            with replacing(self.metrics) as aside:
                aside.write_bytes(whole)
        self.rows = len(kept)
        return notes

    def _begin_metrics(self, steps: list[float], first_save: int) -> list[str]:
        """Puts aside the rows at these steps, of a run that had no checkpoint yet."""
        left = [path.name for path in self.checkpoints.glob("*")]
        # The first row from there on may have been killed, or found no room, before its checkpoint;
        # none can follow it without one. An earlier checkpoint, of a run that was told to stop,
        # begins as a file that is not finished.
        due = sum(step >= first_save for step in steps)
        emptied = self.checkpoints.is_dir() and not any(name.startswith(ASIDE) for name in left)
        if steps and (due > 1 or (due == 0 and emptied)):
            raise LostCheckpointsError(
                f"{self.path} has metrics up to step {max(steps):,.0f}, but no checkpoint to "
                "continue from: restore checkpoints/, or remove metrics.jsonl to start from the "
                "beginning, or choose another folder."
            )
        self.rows = 0
        with suppress(OSError):  # a kill of the run that now begins must not find it emptied
            self.checkpoints.rmdir()
        if not self.metrics.exists() or self.metrics.stat().st_size == 0:
            return []
        before = self.metrics.with_suffix(".before.jsonl")
        # Rows that were put aside earlier are the same as far as they go: the longer file is kept.
        if before.is_file() and before.lstat().st_size >= self.metrics.stat().st_size:
            self.metrics.unlink()
        else:
            os.replace(self.metrics, before)
        return [f"no checkpoint yet: from the beginning; {len(steps)} rows are now in {before}"]

    def _require_equal(
        self,
        before: dict[str, Any],
        now: dict[str, Any],
        force_keys: tuple[str, ...],
        defaults: dict[str, Any],
    ) -> None:
        old, new = flat_settings(defaults) | flat_settings(before), flat_settings(now)
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

    def _begun(self) -> dict[str, Any] | None:
        """What about.json says; None in a new folder."""
        path = self.path / "about.json"
        if not os.path.lexists(path):
            return None
        begun = {"versions": None, "resumed": []} | read_object(path)
        if not isinstance(begun["versions"], dict) or not isinstance(begun["resumed"], list):
            raise ValueError(f"{path} does not tell the run's versions: restore or remove it.")
        return begun


def _lock(descriptor: int) -> None:
    """Locks a file or folder until it is closed, by this process or by the end of it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a network disk that cannot lock a folder: there the file has to do
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
