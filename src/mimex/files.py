"""Writing files so that a reader, or a kill at any moment, meets the old or the new one whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ASIDE = ".writing-"
"""Names of unfinished files start so; they keep their suffix, which tells ffmpeg the format."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path to write to, whose file takes the place of ``path`` when all went well.

    On an error the unfinished file is removed and ``path`` is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(ASIDE + path.name)
    try:
        yield aside
        _sync(aside)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    _sync(path.parent)  # without it a power cut may forget the new name


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
