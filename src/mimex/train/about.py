"""Provenance of a run: versions, source revision, machine and command."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mimex.nn.parallel import available_cores

PACKAGES = ("mimex", "torch", "numpy", "gymnasium", "mujoco", "dm_control", "safetensors")


def about() -> dict[str, Any]:
    """Versions, source revision, machine, command and time of this process, as JSON-able values."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "versions": versions(),
        "git_revision": git_revision(Path(__file__).parent),
        "platform": platform.platform(),
        "cores": available_cores(),
    }


def versions() -> dict[str, str | None]:
    """Of Python and of the packages that a run's numbers may depend on."""
    return {"python": platform.python_version()} | {p: package_version(p) for p in PACKAGES}


def git_revision(folder: Path) -> str | None:
    """The commit that a folder is at, with ``-dirty`` if files differ; None outside of git."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        answer = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


@cache
def package_version(package: str) -> str | None:
    """Of an installed package; None where there is none.

    Asked once: the standard library scans all of ``sys.path`` for it, and keeps what it found for
    every state in which it met those folders.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None
