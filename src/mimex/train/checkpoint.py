"""Checkpoints: nested states in one safetensors file each, whole or not there at all.

The arrays of a state are the file's tensors; everything else is JSON in the file's header, with a
checksum over both. Loading reads numbers and text and executes nothing.
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
"""Goes up when a change of the layout makes older files unreadable."""

_HEADER = "mimex"  # one key only: safetensors writes several in random order

_MISFITS = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
_LARGEST_STEP = 2**63
_log = logging.getLogger(__name__)


class DamagedCheckpointError(ValueError):
    """A checkpoint file is cut short, altered, or not one of ours."""


class OtherFormatError(DamagedCheckpointError):
    """A checkpoint file is of a version of mimex whose files this one cannot read."""


class UnfitCheckpointError(ValueError):
    """A checkpoint is whole, but not of what it shall continue."""


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a state to one file, which appears under its name only when it is complete.

    Args:
        path: The file; its folder is made when missing.
        state: Dicts with string keys, lists and tuples of tensors, NumPy arrays and scalars,
            int, float, bool, str and None, nested as deep as you like.

    Raises:
        TypeError: If the state holds anything else; the message says where.
        OSError: If the disk is full or cannot be written; an older file at ``path`` is intact.
    """
    content = to_bytes(state)
    try:
        with replacing(path) as aside:
            aside.write_bytes(content)
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot write the checkpoint {path} of {len(content) / 1e6:.1f} MB: "
            f"{error.strerror}. Older checkpoints are intact; make room or choose another "
            "folder, then run again to continue from the last one",
        ) from error


def load(path: Path) -> dict[str, Any]:
    """Reads what ``save`` wrote: types, dtypes, shapes and bits are the same, on the CPU.

    Raises:
        DamagedCheckpointError: If the file is not exactly what was written.
    """
    return from_bytes(read_own(path), str(path))


def to_bytes(state: Mapping[str, Any]) -> bytes:
    """What a file of a state holds."""
    structure, tensors = pack(state)
    header = {"format": FORMAT, "sha256": checksum(structure, tensors), "state": structure}
    return safetensors.torch.save(tensors, {_HEADER: json.dumps(header, allow_nan=False)})


def from_bytes(content: bytes, path: str = "what another process sent") -> dict[str, Any]:
    """The state that ``to_bytes`` took; ``path`` is where it came from, for errors."""
    try:
        # Cloned to memory as aligned as any tensor's: rounding in kernels can depend on it.
        tensors = {name: t.clone() for name, t in safetensors.torch.load(content).items()}
        header_size = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + header_size])["__metadata__"][_HEADER])
        if header["format"] != FORMAT:
            raise OtherFormatError(
                f"{path} has the checkpoint format {header['format']!r}; this version of mimex "
                f"reads format {FORMAT}: use the version that wrote it, or another folder."
            )
        if header["sha256"] != checksum(header["state"], tensors):
            raise DamagedCheckpointError(f"{path} was altered: its checksum does not match.")
        state = unpack(header["state"], tensors)
        if not isinstance(state, dict):
            raise DamagedCheckpointError(f"{path} holds no state.")
    except DamagedCheckpointError:
        raise
    except (SafetensorError, RuntimeError, *_MISFITS) as error:  # PyTorch on an impossible shape
        raise DamagedCheckpointError(
            f"{path} is cut short, altered or no checkpoint ({type(error).__name__}: "
            f"{printable(str(error))})."
        ) from error
    return state


class Checkpoints:
    """The last few checkpoints of a run, and the best one, in a folder.

    Args:
        folder: Where the files are; made at the first save.
        keep: How many of the last ones to keep. Two or more let a damaged one be survived.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep} checkpoints; expected at least 1.")
        self.folder = folder
        self.keep = keep
        self._best_score: float | None = None
        self._damaged: list[Path] = []
        self._opened = folder, ""  # the file that was read last, and the version that wrote it

    def save(self, step: int, state: Mapping[str, Any], best: float | None = None) -> None:
        """Saves the state of a step, then removes what is no longer needed.

        Args:
            step: Environment steps so far; never less than at an earlier save.
            state: As ``checkpoint.save`` takes it.
            best: A score of this state, greater is better. The first with the greatest score
                is kept apart, for ``best()``.
        """
        for path in [*self._damaged, *self.folder.glob(f"{ASIDE}*")]:
            path.unlink(missing_ok=True)
        self._damaged.clear()
        newest = max(self._paths(), default=step)
        if step < newest:
            raise ValueError(
                f"step={step} comes before the checkpoint of step {newest} in {self.folder}: "
                "continue from latest(), or save to another folder."
            )
        path = self.folder / f"step_{step:012d}.safetensors"
        save(path, {"mimex": package_version("mimex"), "step": step, "score": best, "state": state})
        self._keep_if_best(path, best)
        self._remove_old()

    def _remove_old(self) -> None:
        paths = self._paths()
        for old in sorted(paths)[: -self.keep]:
            paths[old].unlink()

    @property
    def complete(self) -> bool:
        """Whether nothing shows that a kill cut a save short."""
        unfinished = any(self.folder.glob(f"{ASIDE}*"))
        return not unfinished and self._best_path.exists() and len(self._paths()) <= self.keep

    def repair(self) -> None:
        """Completes a save that a kill cut short after the checkpoint itself was written."""
        for path in self.folder.glob(f"{ASIDE}*"):
            path.unlink(missing_ok=True)
        self.redo_best()
        self._remove_old()

    def latest(self) -> tuple[int, dict[str, Any]] | None:
        """The step and state of the newest checkpoint that can be read; None if there is none.

        A damaged one is passed over with a warning in the log, and removed by the next save. Where
        none of the last ones is left, it is the best one.

        Raises:
            DamagedCheckpointError: If there are checkpoints, and all are damaged.
            OSError: If something else has a checkpoint's name.
        """
        paths = self._paths()
        candidates = [paths[step] for step in sorted(paths, reverse=True)]
        if self._best_path.exists():
            candidates.append(self._best_path)
        for path in candidates:
            if path.is_symlink() or not path.is_file():  # said now, not when the next save meets it
                raise OSError(f"{path} is no regular file: remove it, or use another folder.")
        for path in candidates:
            try:
                found = self._open(path)
            except OtherFormatError:
                raise
            except DamagedCheckpointError as error:
                _log.warning("%s Falling back to the checkpoint before it.", error)
                self._damaged.append(path)
                continue
            if path == self._best_path:
                _log.warning("%s lacks its last checkpoints: taking the best one.", self.folder)
            return found
        if candidates:
            raise DamagedCheckpointError(
                f"all {len(candidates)} checkpoints in {self.folder} are damaged: restore one of "
                "them, or choose another folder to start from the beginning."
            )
        return None

    def redo_best(self) -> None:
        """Copies the best checkpoint where a kill or a full disk came before its copy was made."""
        for _, path in sorted(self._paths().items()):
            try:
                score = load(path)["score"]
            except _MISFITS:  # ``latest`` has warned of it
                continue
            self._keep_if_best(path, score)

    def best(self) -> tuple[int, dict[str, Any]] | None:
        """The step and state with the greatest score; None if no save came with a score."""
        return self._open(self._best_path) if self._best_path.exists() else None

    @contextmanager
    def fitting(self) -> Iterator[None]:
        """In this block the state that was read last is loaded; an error then names its file.

        Raises:
            UnfitCheckpointError: In place of what a state without the expected parts leads to.
        """
        try:
            yield
        except (RuntimeError, LookupError, *_MISFITS) as error:
            (path, by), ours = self._opened, package_version("mimex")
            raise UnfitCheckpointError(
                f"{path}, saved by mimex {by}, does not fit this run of mimex {ours} "
                f"({type(error).__name__}: {' '.join(str(error).split())}): use the version that "
                "saved it, or another folder."
            ) from error

    def _open(self, path: Path) -> tuple[int, dict[str, Any]]:
        saved = load(path)
        try:
            step, state = int(saved["step"]), saved["state"]
            if not 0 <= step < _LARGEST_STEP:
                raise ValueError(f"step {step}")
            self._opened = path, saved.get("mimex", "of an older version")
            return step, {**state}
        except _MISFITS as error:
            raise DamagedCheckpointError(f"{path} holds no step and state of a run.") from error

    @property
    def _best_path(self) -> Path:
        return self.folder / "best.safetensors"

    def _keep_if_best(self, path: Path, score: Any) -> None:
        if not isinstance(score, int | float) or not score > self._score_to_beat():
            return
        try:
            with replacing(self._best_path) as aside:
                shutil.copyfile(path, aside)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot copy {path} to {self._best_path}: {error.strerror}. It is the best one so "
                "far and intact; make room, then run again: the copy is made then",
            ) from error
        self._best_score = float(score)

    def _score_to_beat(self) -> float:
        if self._best_score is None:
            self._best_score = -math.inf
            if self._best_path.exists():
                try:
                    self._best_score = float(load(self._best_path)["score"])
                except (TypeError, DamagedCheckpointError) as error:
                    _log.warning("%s The next best one will replace it.", error)
        return self._best_score

    def _paths(self) -> dict[int, Path]:
        """The files of all steps, by step."""
        names = (
            (re.fullmatch(r"step_(\d+)\.safetensors", p.name), p) for p in self.folder.glob("*")
        )
        return {int(found[1]): path for found, path in names if found}
