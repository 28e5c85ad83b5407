"""Videos from run folders, put into the page as far as there is room."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mimex.files import ASIDE, read_own
from mimex.study.runs import Group


def videos(groups: Sequence[Group], megabytes: float) -> tuple[list[dict[str, Any]], list[str]]:
    """The videos that fit, first one of every group, and the names of those that do not.

    Args:
        groups: Runs by task and method.
        megabytes: Room for all videos (MB of files; in the page they take a third more).
    """
    found = []  # (place within its group, ...), so that every group gets its first
    for group in groups:
        paths = [(run, path) for run in group.runs for path in _finished(run.path / "videos")]
        found += [(place, group, run, path) for place, (run, path) in enumerate(paths)]
    found.sort(key=lambda video: video[0])
    room = megabytes * 1e6
    taken, left_out = [], []
    for _, group, run, path in found:
        size = path.stat().st_size
        if size > room:
            left_out.append(f"{run.name}/videos/{path.name} ({size / 1e6:.1f} MB)")
            continue
        room -= size
        taken.append(
            {
                "task": group.task,
                "method": group.label,
                "name": f"{run.name}/{path.name}",
                "data": base64.b64encode(read_own(path)).decode(),
            }
        )
    return taken, left_out


def _finished(folder: Path) -> list[Path]:
    """The whole videos of a folder; nothing that a symbolic link leads to, which may be private."""
    if folder.is_symlink():
        return []
    return sorted(
        path
        for path in folder.glob("*.mp4")
        if path.is_file() and not path.is_symlink() and not path.name.startswith(ASIDE)
    )
