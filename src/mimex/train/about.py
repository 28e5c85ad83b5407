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
    """Returns versions, source revision, machine, command and start time as JSON values."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "versions": versions(),
        "git_revision": git_revision(Path(__file__).parent),
        "platform": platform.platform(),
        "cores": available_cores(),
    }


def versions() -> dict[str, str | None]:
    """Returns the versions of Python and of packages that affect results."""
    return {"python": platform.python_version()} | {p: package_version(p) for p in PACKAGES}


def git_revision(folder: Path) -> str | None:
    """Returns the git commit of a folder, with ``-dirty`` if files differ; None without git."""
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
    """Returns the version of a package; None if it is not installed.

    Cached, because ``importlib.metadata`` scans all of ``sys.path``.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None
