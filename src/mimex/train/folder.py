"""The run folder: settings, metrics and checkpoints of a run, with a lock."""

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
from mimex.track.jsonl import row_step
from mimex.train.about import about, versions

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
"""Subfolders of a run or study folder."""


REMOVED = {("ppo", "value_clip"): None, ("loop", "bonus_epochs"): 1}
"""Settings of earlier versions, and the value that is now the only behavior: with it, config.json
is read without them."""


class FolderInUseError(RuntimeError):
    """Another process is writing to the run folder."""


class FolderLostError(RuntimeError):
    """The run folder was renamed or removed during the run."""


class LostCheckpointsError(RuntimeError):
    """The run folder has metrics, but its checkpoints are missing."""


class ConfigMismatchError(ValueError):
    """The run in the folder was started with other settings."""


class RunFolder:
    """A run's folder: config.json, about.json, metrics.jsonl, checkpoints/ and videos/.

    To write, enter it (``with RunFolder(path) as run``), which locks it until the block or the
    process ends, then call ``claim``. Reading needs no lock.

    Args:
        path: The folder; created when entered.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.videos = path / "videos"
        self.rows = 0  # rows of metrics so far, counted by the caller
        self._locks: tuple[int, int] | None = None  # descriptors of the folder and of .lock

    def __enter__(self) -> Self:
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(f"{self.path} is a file; expected a run folder.")
        self.path.mkdir(parents=True, exist_ok=True)
        for name in FOLDERS:
            if (self.path / name).is_symlink():
                raise OSError(
                    f"{self.path / name} is a symbolic link, but a run only writes to its own "
                    "folder: remove the link, or choose another folder."
                )
        lock_file = open_own(self.path / ".lock", os.O_RDWR | os.O_CREAT)
        # The folder is locked too, so that removing .lock lets no other process in.
        self._locks = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY), lock_file
        try:
            for descriptor in self._locks:
                _lock(descriptor)
        except BlockingIOError as error:
            owner = os.read(lock_file, 32).decode(errors="replace") or "unknown"
            self.__exit__(None, None, None)
            raise FolderInUseError(
                f"{self.path} is in use by another run (process {owner}): wait for it to end, stop "
                "it, or choose another folder."
            ) from error
        os.ftruncate(lock_file, 0)
        os.write(lock_file, str(os.getpid()).encode())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # .lock is not removed: a process that has it open could lock it while another one creates
        # and locks a new file.
        for descriptor in self._locks or ():
            os.close(descriptor)
        self._locks = None

    def require_same(self) -> None:
        """Raises an error if the folder was renamed or replaced since it was entered."""
        assert self._locks is not None
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self._locks[0]))
        except FileNotFoundError:
            same = False
        if not same:
            raise FolderLostError(
                f"{self.path} was renamed or removed during the run. Rename it back and run again "
                "to resume from its last checkpoint."
            )

    @property
    def config(self) -> dict[str, Any] | None:
        """Settings of the run's start; None for a new folder."""
        path = self.path / "config.json"
        if not os.path.lexists(path):
            return None
        config = read_object(path)
        for (section, name), value in REMOVED.items():
            settings = config.get(section)
            if isinstance(settings, dict) and settings.get(name, ()) == value:
                del settings[name]
        return config

    def check(
        self,
        config: Mapping[str, Any],
        may_change: Iterable[str] = (),
        defaults: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Checks that these settings match the run in the folder; changes nothing.

        Args:
            config: Nested settings.
            may_change: Dotted names of settings, or sections, that may differ, such as ``steps``.
            defaults: Nested settings to assume for those that config.json lacks, because an older
                version wrote it.

        Returns:
            Notes for the user.

        Raises:
            ConfigMismatchError: If other settings differ, or config.json is missing.
        """
        before = self.config
        if before is not None:
            self._require_equal(before, config, tuple(may_change), defaults or {})
        elif self.metrics.exists() or self.checkpoints.exists():
            raise ConfigMismatchError(
                f"{self.path} contains a run, but config.json is missing: restore it, or choose "
                "another folder."
            )
        begun = self._about()
        others = [
            f"{name} {begun['versions'].get(name)} (now {now})"
            for name, now in versions().items()
            if begun is not None and begun["versions"].get(name) != now
        ]
        return [f"the run started with {', '.join(others)}: results may differ"] * bool(others)

    def claim(
        self,
        config: Mapping[str, Any],
        may_change: Iterable[str] = (),
        defaults: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Writes config.json and about.json of a new or resumed run, after ``check``."""
        if self._locks is None:
            raise RuntimeError("claim() needs the lock: use `with RunFolder(path) as run`.")
        notes = self.check(config, may_change, defaults)
        begun, now = self._about(), about()
        start = now if begun is None else begun | {"resumed": [*begun["resumed"], now]}
        for name, content in (("config.json", config), ("about.json", start)):
            with replacing(self.path / name) as aside:
                aside.write_text(json.dumps(content, indent=2, default=os.fspath) + "\n")
        return notes

    def restore_metrics(self, saved: tuple[int, int | None] | None, first_save: int) -> list[str]:
        """Removes rows after the checkpoint, which the resumed run will write again.

        Damaged lines are moved to metrics.damaged.jsonl.

        Args:
            saved: Step of the checkpoint, and its number of rows (None if unknown); None without a
                checkpoint.
            first_save: Step of the first checkpoint that the schedule asks for.

        Returns:
            Notes for the user.

        Raises:
            LostCheckpointsError: If there must have been checkpoints.
        """
        content = read_own(self.metrics) if os.path.lexists(self.metrics) else b""
        *lines, tail = content.split(b"\n")
        if row_step(tail) is not None:
            lines.append(tail)  # only the newline is missing
        steps = [row_step(line) for line in lines]
        if saved is None:
            return self._start_metrics([step for step in steps if step is not None], first_save)
        step, rows = saved
        rows = rows if isinstance(rows, int) and rows >= 0 else None
        known = list(zip(lines, steps, strict=True))
        kept = [line for line, at in known if at is not None and at <= step][:rows]
        damaged = [line for line, at in known if at is None and line]
        notes = []
        if damaged:
            path = self.metrics.with_suffix(".damaged.jsonl")
            with append_to(path) as file:
                file.write(b"\n".join([*damaged, b""]))
            notes.append(f"{len(damaged)} damaged lines of {self.metrics} were moved to {path}")
        lost = (min(step, 1) if rows is None else rows) - len(kept)
        if lost > 0:
            count = "all" if rows is None else lost
            notes.append(
                f"{self.metrics} lacks {count} rows up to step {step:,}, which cannot be restored"
            )
        restored = b"\n".join([*kept, b""])
        if not kept:
            self.metrics.unlink(missing_ok=True)
        elif restored != content:
            with replacing(self.metrics) as aside:
                aside.write_bytes(restored)
        self.rows = len(kept)
        return notes

    def _start_metrics(self, steps: list[float], first_save: int) -> list[str]:
        """Moves rows of a run that had no checkpoint yet to metrics.before.jsonl."""
        left = [path.name for path in self.checkpoints.glob("*")]
        # One row may precede the first checkpoint if that was killed or did not fit on the disk. A
        # checkpoint that was requested earlier, by a signal, leaves an unfinished file.
        due = sum(step >= first_save for step in steps)
        emptied = self.checkpoints.is_dir() and not any(name.startswith(ASIDE) for name in left)
        if steps and (due > 1 or (due == 0 and emptied)):
            raise LostCheckpointsError(
                f"{self.path} has metrics up to step {max(steps):,.0f}, but no checkpoint to "
                "resume from: restore checkpoints/, or remove metrics.jsonl to start from scratch, "
                "or choose another folder."
            )
        self.rows = 0
        with suppress(OSError):  # an empty folder would look like lost checkpoints
            self.checkpoints.rmdir()
        if not self.metrics.exists() or self.metrics.stat().st_size == 0:
            return []
        before = self.metrics.with_suffix(".before.jsonl")
        # Earlier attempts wrote the same rows: keep the longer file.
        if before.is_file() and before.lstat().st_size >= self.metrics.stat().st_size:
            self.metrics.unlink()
        else:
            os.replace(self.metrics, before)
        return [f"no checkpoint yet: starting from scratch; {len(steps)} rows moved to {before}"]

    def _require_equal(
        self,
        before: Mapping[str, Any],
        config: Mapping[str, Any],
        may_change: tuple[str, ...],
        defaults: Mapping[str, Any],
    ) -> None:
        old, new = flat_settings(defaults) | flat_settings(before), flat_settings(config)
        differences = [
            f"  {name}: {old.get(name, 'not set')} there, {new.get(name, 'not set')} now"
            for name in sorted(old.keys() | new.keys())
            if old.get(name) != new.get(name)
            and not any(name == key or name.startswith(f"{key}.") for key in may_change)
        ]
        if differences:
            raise ConfigMismatchError(
                f"{self.path} contains a run with other settings:\n"
                + "\n".join(differences)
                + "\nUse the same settings to resume it, or choose another folder."
            )

    def _about(self) -> dict[str, Any] | None:
        """Content of about.json; None for a new folder."""
        path = self.path / "about.json"
        if not os.path.lexists(path):
            return None
        begun = {"versions": None, "resumed": []} | read_object(path)
        if not isinstance(begun["versions"], dict) or not isinstance(begun["resumed"], list):
            raise ValueError(f"{path} lacks the run's versions: restore or remove it.")
        return begun


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings by dotted name, as JSON text, in which NaN equals NaN and 1 is not 1.0."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = json.dumps(value, default=os.fspath)
    return flat


def _lock(descriptor: int) -> None:
    """Locks a file or folder until it is closed or the process ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # some network disks cannot lock folders: the lock of the file must do
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
