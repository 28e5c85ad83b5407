"""Checkpoints: nested states in safetensors files, written atomically.

The arrays of a state are the file's tensors. Everything else is JSON in the file's header, with a
checksum over both. Nothing that is loaded is executed.
"""

from __future__ import annotations

import json
import logging
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from mimex.files import ASIDE, printable, read_own, replacing
from mimex.train.about import package_version
from mimex.train.packing import checksum, pack, unpack

FORMAT = 1
"""Version of the file layout; increased when older files become unreadable."""

_HEADER = "mimex"  # a single key, because safetensors writes several in random order
_MAX_STEP = 2**63
_INVALID = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
_log = logging.getLogger(__name__)


class DamagedCheckpointError(ValueError):
    """A checkpoint file is truncated, altered, or not a checkpoint."""


class CheckpointFormatError(DamagedCheckpointError):
    """A checkpoint file has the format of another version of mimex."""


class CheckpointMismatchError(ValueError):
    """An intact checkpoint does not match the run that loads it."""


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a state to a file, atomically.

    Args:
        path: The file; its folder is created if missing.
        state: Nested dicts with string keys, lists and tuples of tensors, NumPy arrays and scalars,
            int, float, bool, str and None.

    Raises:
        TypeError: If the state contains anything else.
        OSError: If the file cannot be written; an older file at ``path`` is intact.
    """
    content = to_bytes(state)
    try:
        with replacing(path) as aside:
            aside.write_bytes(content)
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot write the checkpoint {path} of {len(content) / 1e6:.1f} MB: "
            f"{error.strerror}. Older checkpoints are intact; free some space or choose another "
            "folder, then run again to resume from the last one",
        ) from error


def load(path: Path) -> dict[str, Any]:
    """Loads a state that ``save`` wrote, bit for bit, to the CPU.

    Raises:
        DamagedCheckpointError: If the file is not exactly what was written.
    """
    return from_bytes(read_own(path), str(path))


def to_bytes(state: Mapping[str, Any]) -> bytes:
    """Serializes a state."""
    structure, tensors = pack(state)
    header = {"format": FORMAT, "sha256": checksum(structure, tensors), "state": structure}
    return safetensors.torch.save(tensors, {_HEADER: json.dumps(header, allow_nan=False)})


def from_bytes(content: bytes, path: str = "data of another process") -> dict[str, Any]:
    """Deserializes a state; ``path`` is named in errors."""
    try:
        # Cloned, because the alignment of memory can affect rounding.
        tensors = {name: t.clone() for name, t in safetensors.torch.load(content).items()}
        header_size = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + header_size])["__metadata__"][_HEADER])
        if header["format"] != FORMAT:
            raise CheckpointFormatError(
                f"{path} has the checkpoint format {header['format']!r}; this version of mimex "
                f"reads format {FORMAT}: use the version that wrote it, or another folder."
            )
        if header["sha256"] != checksum(header["state"], tensors):
            raise DamagedCheckpointError(f"{path} was altered: its checksum does not match.")
        state = unpack(header["state"], tensors)
        if not isinstance(state, dict):
            raise DamagedCheckpointError(f"{path} does not contain a state.")
    except DamagedCheckpointError:
        raise
    except (SafetensorError, RuntimeError, *_INVALID) as error:
        raise DamagedCheckpointError(
            f"{path} is truncated, altered or not a checkpoint ({type(error).__name__}: "
            f"{printable(str(error))})."
        ) from error
    return state


class Checkpoints:
    """The folder of a run's last checkpoints and its best one.

    Args:
        folder: The folder; created by the first save.
        keep: Number of last checkpoints to keep. With two or more, a damaged one is not fatal.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep} checkpoints; expected at least 1.")
        self.folder = folder
        self.keep = keep
        self._best_path = folder / "best.safetensors"
        self._best_score: float | None = None
        self._damaged: list[Path] = []
        self._loaded = folder, ""  # the last file that was loaded, and the version that wrote it

    def save(self, step: int, state: Mapping[str, Any], score: float | None = None) -> None:
        """Saves a checkpoint, and removes old ones.

        Args:
            step: Environment steps so far; must not decrease.
            state: See ``checkpoint.save``.
            score: Evaluation score. The first checkpoint with the highest score is also kept.
        """
        for path in self._damaged:
            path.unlink(missing_ok=True)
        self._damaged.clear()
        self._remove_unfinished()
        newest = max(self._paths(), default=step)
        if step < newest:
            raise ValueError(
                f"step={step} comes before the checkpoint of step {newest} in {self.folder}: "
                "resume from latest(), or save to another folder."
            )
        path = self.folder / f"step_{step:012d}.safetensors"
        content = {"mimex": package_version("mimex"), "step": step, "score": score, "state": state}
        save(path, content)
        self._copy_if_best(path, score)
        self._remove_old()

    def latest(self) -> tuple[int, dict[str, Any]] | None:
        """Returns step and state of the newest intact checkpoint; None if there is none.

        Damaged ones are skipped with a warning, and removed by the next save. If all of the last
        ones are missing or damaged, the best one is used.

        Raises:
            DamagedCheckpointError: If all checkpoints are damaged.
            OSError: If a checkpoint is not a regular file.
        """
        paths = self._paths()
        candidates = [paths[step] for step in sorted(paths, reverse=True)]
        if self._best_path.exists():
            candidates.append(self._best_path)
        for path in candidates:
            if path.is_symlink() or not path.is_file():
                raise OSError(f"{path} is not a regular file: remove it, or use another folder.")
        for path in candidates:
            try:
                loaded = self._load(path)
            except CheckpointFormatError:
                raise
            except DamagedCheckpointError as error:
                _log.warning("%s Falling back to an older checkpoint.", error)
                self._damaged.append(path)
                continue
            if path == self._best_path:
                _log.warning("%s has none of its last checkpoints: using the best.", self.folder)
            return loaded
        if candidates:
            raise DamagedCheckpointError(
                f"all {len(candidates)} checkpoints in {self.folder} are damaged: restore one of "
                "them, or choose another folder to start from scratch."
            )
        return None

    def best(self) -> tuple[int, dict[str, Any]] | None:
        """Returns step and state with the highest score; None if no save had a score."""
        return self._load(self._best_path) if self._best_path.exists() else None

    @contextmanager
    def loading(self) -> Iterator[None]:
        """In this block, errors of loading the last state name its file.

        Raises:
            CheckpointMismatchError: In place of the original error.
        """
        try:
            yield
        except (RuntimeError, LookupError, *_INVALID) as error:
            (path, writer), ours = self._loaded, package_version("mimex")
            raise CheckpointMismatchError(
                f"{path}, saved by mimex {writer}, does not match this run of mimex {ours} "
                f"({type(error).__name__}: {' '.join(str(error).split())}): use the version that "
                "saved it, or another folder."
            ) from error

    @property
    def complete(self) -> bool:
        """Whether there are no traces of a save that was interrupted."""
        unfinished = any(self.folder.glob(f"{ASIDE}*"))
        return not unfinished and self._best_path.exists() and len(self._paths()) <= self.keep

    def repair(self) -> None:
        """Completes a save that was interrupted after its checkpoint was written."""
        for _, path in sorted(self._paths().items()):
            try:
                score = load(path)["score"]
            except _INVALID:  # ``latest`` has warned of it
                continue
            self._copy_if_best(path, score)
        self._remove_unfinished()
        self._remove_old()

    def _load(self, path: Path) -> tuple[int, dict[str, Any]]:
        saved = load(path)
        try:
            step, state = int(saved["step"]), saved["state"]
            if not 0 <= step < _MAX_STEP:
                raise ValueError(f"step {step}")
            self._loaded = path, saved.get("mimex", "of an older version")
            return step, {**state}
        except _INVALID as error:
            raise DamagedCheckpointError(
                f"{path} does not contain a valid step and state."
            ) from error

    def _copy_if_best(self, path: Path, score: Any) -> None:
        if not isinstance(score, int | float) or not score > self._highest_score():
            return
        try:
            with replacing(self._best_path) as aside:
                shutil.copyfile(path, aside)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot copy {path} to {self._best_path}: {error.strerror}. The best checkpoint "
                "so far is intact; free some space, then run again to make the copy",
            ) from error
        self._best_score = float(score)

    def _highest_score(self) -> float:
        if self._best_score is None:
            self._best_score = -math.inf
            if self._best_path.exists():
                try:
                    self._best_score = float(load(self._best_path)["score"])
                except (TypeError, DamagedCheckpointError) as error:
                    _log.warning("%s The next best checkpoint will replace it.", error)
        return self._best_score

    def _remove_unfinished(self) -> None:
        for path in self.folder.glob(f"{ASIDE}*"):
            path.unlink(missing_ok=True)

    def _remove_old(self) -> None:
        paths = self._paths()
        for step in sorted(paths)[: -self.keep]:
            paths[step].unlink()

    def _paths(self) -> dict[int, Path]:
        return step_files(self.folder)


def step_files(folder: Path) -> dict[int, Path]:
    """Returns the files ``step_N.safetensors`` of a folder by step."""
    matches = (
        (re.fullmatch(r"step_(\d+)\.safetensors", path.name), path) for path in folder.glob("*")
    )
    return {int(match[1]): path for match, path in matches if match}
