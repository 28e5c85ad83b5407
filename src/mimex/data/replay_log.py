"""Memory and files of a replay buffer.

Every save writes only new observations. The folder has one file for each segment of observations,
named by environment and indices, written atomically and never changed. A checkpoint stores only the
number of observations: the files contain all before it, whatever was written later.
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

MAX_SEGMENT = 4096
"""Observations per file: 87 MB for frames of 3 x 84 x 84 bytes."""

MEMORY_FRACTION = 0.9
"""Fraction of the free memory that the observations may take."""


class DamagedReplayError(OSError):
    """A file of a replay buffer is missing or damaged."""


def free_memory() -> int:
    """Free memory of this machine (bytes)."""
    if sys.platform == "linux":
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def allocate(shape: tuple[int, ...], dtype: torch.dtype, file: Path | None = None) -> Tensor:
    """Allocates an array of zeros, in a file if one is given.

    Raises:
        ValueError: If it does not fit into memory.
        OSError: If the file does not fit onto the disk.
    """
    count = math.prod(shape)
    size = count * dtype.itemsize
    if file is not None:
        reserve(file, size)
        try:
            return torch.from_file(str(file), shared=True, size=count, dtype=dtype).view(shape)
        finally:
            file.unlink()  # the space is freed when the process ends, however it ends
    free = free_memory()
    if size > MEMORY_FRACTION * free:
        raise ValueError(
            f"replay.capacity={shape[0]:,} observations of {size // shape[0]:,} bytes need "
            f"{size / 1e9:.1f} GB, but {free / 1e9:.1f} GB of memory are free: use a "
            f"replay.capacity of at most {int(MEMORY_FRACTION * free * shape[0] / size):,}, or "
            "--replay.memory-mapped to keep them in a file."
        )
    return torch.zeros(shape, dtype=dtype)


def reserve(file: Path, size: int) -> None:
    """Creates a file of zeros with all of its disk space reserved, and replaces an existing one.

    Writing to a mapped file without reserved space kills the process when the disk is full.

    Raises:
        OSError: If it does not fit; no file is left behind.
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
    """A file with observations of one environment, from ``first`` to before ``end``."""

    path: Path
    env: int
    first: int
    end: int


class ReplayLog:
    """The files of one replay buffer.

    Args:
        folder: Folder of the files; created at the first save.
        arrays: The rings, ``(N * slots, ...)`` each.
        slots: Size of each environment's ring.
    """

    def __init__(self, folder: Path, arrays: Mapping[str, Tensor], slots: int) -> None:
        self.folder, self._arrays, self._slots = folder, arrays, slots
        self._rings = len(next(iter(arrays.values()))) // slots
        self._saved: list[int] = []  # observations of each environment in the files
        self._before: list[int] = []  # the same at the previous save

    @property
    def empty(self) -> bool:
        """Whether there is no file."""
        return not self._segments()

    def append(self, added: list[int]) -> None:
        """Writes the observations of each environment up to these counts.

        Removes files with observations that the buffer had overwritten at the previous save.
        """
        self._remove_unfinished()
        if not self._saved:
            self._saved = [0] * len(added)
        for segment in self._segments():
            if segment.first >= self._saved[segment.env]:
                segment.path.unlink()  # of a run that was killed before its checkpoint was written
        for env, end in enumerate(added):
            first = max(self._saved[env], end - self._slots)
            for start in range(first, end, MAX_SEGMENT):
                self._write(env, start, min(start + MAX_SEGMENT, end))
        for segment in self._segments():
            if self._before and segment.end <= self._before[segment.env] - self._slots:
                segment.path.unlink()
        self._before, self._saved = self._saved, list(added)

    def read(self, added: list[int]) -> None:
        """Fills the rings with the observations of each environment up to these counts.

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
                    f"observations {wanted} to {end} of environment {env} are missing from "
                    f"{self.folder}"
                )
        self._saved, self._before = list(added), []

    def _remove_unfinished(self) -> None:
        """Removes temporary files of an interrupted save: ours, and those of ``save_file``."""
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
            os.close(open_own(segment.path, os.O_RDONLY))  # rejects links, pipes and folders
            with safe_open(segment.path, "pt") as file:
                digest = file.metadata()["sha256"]
                tensors = {name: file.get_tensor(name) for name in self._arrays}
        except (SafetensorError, OSError, KeyError, TypeError) as error:
            raise self._damaged(f"{segment.path} is damaged ({error})") from error
        if digest != _digest(tensors) or any(
            tensors[name].shape != (segment.end - segment.first, *array.shape[1:])
            for name, array in self._arrays.items()
        ):
            raise self._damaged(f"{segment.path} is damaged: its checksum is wrong")
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
