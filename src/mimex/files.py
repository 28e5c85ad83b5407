"""Reading and writing files: whole or not at all, and only those that are in their folder.

A reader, or a kill at any moment, meets the old or the new file whole. Folders may be shared with
people whom we do not know: a symbolic link in place of a file is neither written nor read through.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

ASIDE = ".writing-"
"""Names of unfinished files start so; they keep their suffix, which tells ffmpeg the format."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path to write to, whose file takes the place of ``path`` when all went well.

    On an error the unfinished file is removed, with the folder if it was made for it, and ``path``
    is as it was.
    """
    made = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(ASIDE + path.name)
    try:
        aside.unlink(missing_ok=True)  # left by a kill, or a link that somebody put there
        os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield aside
        if aside.lstat().st_size == 0:
            raise FileNotFoundError(f"nothing was written to {path}.")
        sync(aside)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):  # which would hide the error
            aside.unlink(missing_ok=True)
            if made:
                path.parent.rmdir()
        raise
    sync(path.parent)  # without it a power cut may forget the new name


def append_to(path: Path) -> FileIO:
    """Opens a file to append to and read, without a buffer; made, with its folder, if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileIO(open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "ab+")


def read_own(path: Path) -> bytes:
    """What a regular file holds."""
    with FileIO(open_own(path, os.O_RDONLY), "rb") as file:
        return file.readall()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object that a regular file holds.

    Raises:
        ValueError: If it holds anything else.
    """
    try:
        content: dict[str, Any] = json.loads(read_own(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not JSON ({error}): restore it, or use another folder."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(
            f"{path} holds {json.dumps(content)[:40]}, but must hold names with values: restore "
            "it, or use another folder."
        )
    return content


def printable(text: str) -> str:
    """A text that may come from a file of anybody, as a terminal can show it.

    Escape sequences, which could move its cursor or change its title, become readable.
    """
    return "".join(
        x if x.isprintable() or x in "\n\t" else x.encode("unicode_escape").decode() for x in text
    )


def open_own(path: Path, flags: int) -> int:
    """Opens a regular file; never a symbolic link, which may lead anywhere, nor a pipe.

    Raises:
        OSError: If it is something else, or cannot be opened.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise OSError(
                error.errno, f"{path} is a symbolic link, which is not followed: remove it"
            ) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file: remove it, or use another folder.")
    return descriptor


def sync(path: Path) -> None:
    """Returns when what was written to a file, or into a folder, has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
