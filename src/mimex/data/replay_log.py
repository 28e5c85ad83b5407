"""Where a replay buffer's arrays are: in memory if they fit, in a file, and saved on disk.

Every save writes only what is new. The folder has one file for each segment of observations, named
by environment and numbers, written whole or not at all and never changed. A checkpoint need only
remember how many observations there were: those before that number are in the files, whatever was
written after it.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mimex.files import ASIDE, open_own, replacing

LONGEST = 4096
"""Observations in one file at most: 87 MB of frames of 3 x 84 x 84 bytes."""

SPARE = 0.9
"""The share of the free memory that one array may take; the rest is for everything else."""


class DamagedReplayError(OSError):
    """The files of a replay buffer are not what was written."""


def free_memory() -> int:
    """Bytes that this machine can still give out."""
    if sys.platform == "linux":
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def allocate(shape: tuple[int, ...], dtype: torch.dtype, file: Path | None = None) -> Tensor:
    """An array of zeros, in a file if one is given.

    Raises:
        ValueError: If it does not fit into memory; with the numbers, before any work is done.
        OSError: If the file does not fit onto the disk, likewise.
    """
    count = math.prod(shape)
    size = count * dtype.itemsize
    if file is not None:
        reserve(file, size)
        try:
            return torch.from_file(str(file), shared=True, size=count, dtype=dtype).view(shape)
        finally:
            file.unlink()  # its space is kept while it is mapped, and given back however we end
    free = free_memory()
    if size > SPARE * free:
        raise ValueError(
            f"replay.capacity={shape[0]:,} observations of {size // shape[0]:,} bytes need "
            f"{size / 1e9:.1f} GB, but {free / 1e9:.1f} GB of memory are free: use a "
            f"replay.capacity of at most {int(SPARE * free * shape[0] / size):,}, or "
            "--replay.memory-mapped to keep them in a file."
        )
    return torch.zeros(shape, dtype=dtype)


def reserve(file: Path, size: int) -> None:
    """Makes a file of zeros with all of its space on the disk, in place of one that was there.

    Writing to a mapped file whose space is not reserved kills the process when the disk is full.

    Raises:
        OSError: If it does not fit; there is no file then.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:  # macOS
            os.truncate(descriptor, size)
    except OSError as error:
        file.unlink()
        raise OSError(
            error.errno,
            f"cannot reserve {size / 1e6:,.1f} MB for the replay buffer in {file.parent} "
            f"(--replay.memory-mapped): {error.strerror}; make room, use a smaller "
            "--replay.capacity, or choose another folder",
        ) from error
    finally:
        os.close(descriptor)


class _Segment(NamedTuple):
    """A file and the observations in it: of one environment, from ``first`` to before ``end``."""

    path: Path
    env: int
    first: int
    end: int


class ReplayLog:
    """The files of one replay buffer.

    Args:
        folder: Where the files are; made at the first save.
        arrays: The rings, ``(N * slots, ...)`` each: read when saving, filled when loading.
        slots: Of each environment's ring.
    """

    def __init__(self, folder: Path, arrays: Mapping[str, Tensor], slots: int) -> None:
        self.folder, self._arrays, self._slots = folder, arrays, slots
        self._rings = len(next(iter(arrays.values()))) // slots
        self._saved: list[int] = []  # per environment, how many observations are in the files
        self._before: list[int] = []  # the same at the save before

    @property
    def empty(self) -> bool:
        """Whether there is no file."""
        return not self._segments()

    def append(self, added: list[int]) -> None:
        """Writes the observations up to these numbers of each environment.

        Those that the buffer of the save before has already forgotten are removed.
        """
        self._remove_unfinished()
        if not self._saved:
            self._saved = [0] * len(added)
        for segment in self._segments():
            if segment.first >= self._saved[segment.env]:
                segment.path.unlink()  # of a run that was killed before its checkpoint was there
        for env, end in enumerate(added):
            first = max(self._saved[env], end - self._slots)
            for start in range(first, end, LONGEST):
                self._write(env, start, min(start + LONGEST, end))
        for segment in self._segments():
            if self._before and segment.end <= self._before[segment.env] - self._slots:
                segment.path.unlink()
        self._before, self._saved = self._saved, list(added)

    def read(self, added: list[int]) -> None:
        """Fills the rings with the observations up to these numbers of each environment.

        Raises:
            DamagedReplayError: If a file is missing or damaged.
        """
        self._remove_unfinished()
        segments = sorted(self._segments(), key=lambda segment: segment.first)
        for env, end in enumerate(added):
            wanted = max(0, end - self._slots)
            for segment in segments:
                if segment.env == env and segment.first <= wanted < min(segment.end, end):
                    self._load(segment, wanted, min(segment.end, end))
                    wanted = min(segment.end, end)
            if wanted < end:
                raise self._damaged(
                    f"observations {wanted} to {end} of environment {env} are gone from "
                    f"{self.folder}"
                )
        self._saved, self._before = list(added), []

    def _remove_unfinished(self) -> None:
        """Removes what a kill during a save has left: our files, and those of ``save_file``."""
        for path in self.folder.glob(".*"):
            ours = path.name.startswith(ASIDE) or re.fullmatch(r"\.tmp\w{6}", path.name)
            if ours and not path.is_dir():
                path.unlink()

    def _write(self, env: int, first: int, end: int) -> None:
        rows = self._rows(env, first, end)
        tensors = {name: array[rows] for name, array in self._arrays.items()}
        path = self.folder / f"{env:04d}_{first:012d}_{end:012d}.safetensors"
        content = safetensors.torch.save(tensors, {"sha256": _digest(tensors)})
        try:
            with replacing(path) as aside:
                aside.write_bytes(content)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot write {path} of {len(content) / 1e6:.1f} MB, a part of the replay buffer: "
                f"{error.strerror}. Checkpoints are intact; make room or choose another folder, "
                "then run again to continue from the last one",
            ) from error

    def _load(self, segment: _Segment, first: int, end: int) -> None:
        try:
            os.close(open_own(segment.path, os.O_RDONLY))  # no link, pipe or folder
            with safe_open(segment.path, "pt") as file:
                digest = file.metadata()["sha256"]
                tensors = {name: file.get_tensor(name) for name in self._arrays}
        except (SafetensorError, OSError, KeyError, TypeError) as error:
            raise self._damaged(f"{segment.path} is damaged ({error})") from error
        if digest != _digest(tensors) or any(
            tensors[name].shape != (segment.end - segment.first, *array.shape[1:])
            for name, array in self._arrays.items()
        ):
            raise self._damaged(f"{segment.path} is damaged: it is not what was written")
        rows = self._rows(segment.env, first, end)
        some = slice(first - segment.first, end - segment.first)
        for name, array in self._arrays.items():
            array[rows] = tensors[name][some]

    def _damaged(self, what: str) -> DamagedReplayError:
        return DamagedReplayError(
            f"{what}: restore the replay buffer, or remove the folder {self.folder} to continue "
            "with an empty one."
        )

    def _rows(self, env: int, first: int, end: int) -> Tensor:
        return env * self._slots + torch.arange(first, end) % self._slots

    def _segments(self) -> list[_Segment]:
        found = (
            (re.fullmatch(r"(\d+)_(\d+)_(\d+)\.safetensors", path.name), path)
            for path in self.folder.glob("*.safetensors")
        )
        return [
            _Segment(path, int(match[1]), int(match[2]), int(match[3]))
            for match, path in found
            if match and int(match[1]) < self._rings
        ]


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
