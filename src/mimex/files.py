"""Atomic writes, and reads that do not follow symbolic links.

After a kill at any moment, a file has its complete old or its complete new content. Folders may be
shared with untrusted users, so symbolic links are not followed.
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
"""Name prefix of unfinished files. The suffix stays: ffmpeg infers the format from it."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path, whose file atomically replaces ``path`` on success.

    On an error the temporary file is removed, and so is the folder if it was created here.
    ``path`` is then unchanged.
    """
    created = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(ASIDE + path.name)
    try:
        aside.unlink(missing_ok=True)  # left by a kill, or a planted link
        os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield aside
        if aside.lstat().st_size == 0:
            raise FileNotFoundError(f"nothing was written to {path}.")
        sync(aside)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):  # keep the original error
            aside.unlink(missing_ok=True)
            if created:
                path.parent.rmdir()
        raise
    sync(path.parent)  # otherwise a power failure may undo the rename


def append_to(path: Path) -> FileIO:
    """Opens a file for appending and reading, unbuffered; creates it and its folder if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileIO(open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "ab+")


def read_own(path: Path) -> bytes:
    """Reads a regular file."""
    with FileIO(open_own(path, os.O_RDONLY), "rb") as file:
        return file.readall()


def read_object(path: Path) -> dict[str, Any]:
    """Reads a regular file with a JSON object.

    Raises:
        ValueError: If the content is not a JSON object.
    """
    try:
        content: dict[str, Any] = json.loads(read_own(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not JSON ({error}): restore it, or use another folder."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(
            f"{path} holds {json.dumps(content)[:40]}, but must hold a JSON object: restore it, "
            "or use another folder."
        )
    return content


def printable(text: str) -> str:
    """Escapes control characters in untrusted text, for a terminal.

    Raw escape sequences could move the cursor or change the title.
    """
    return "".join(
        x if x.isprintable() or x in "\n\t" else x.encode("unicode_escape").decode() for x in text
    )


def open_own(path: Path, flags: int) -> int:
    """Opens a regular file, but no symbolic link or pipe.

    Raises:
        OSError: If it is not a regular file, or cannot be opened.
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
        raise OSError(f"{path} is not a regular file: remove it, or use another folder.")
    return descriptor


def sync(path: Path) -> None:
    """Flushes a file or a folder to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
