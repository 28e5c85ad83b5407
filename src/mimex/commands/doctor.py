"""`mimex doctor`: is the bonus correct, and does it reach the update?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from mimex.doctor import run_doctor


@dataclass(frozen=True)
class DoctorConfig:
    """Examine a set-up of yours: windows, alignment, novelty, scale, and whether the bonus is used.

    Prints a table of checks with remedies; the exit code is 0 if nothing failed.
    """

    target: tyro.conf.Positional[str | None] = None
    """Your set-up as module:function or file.py:function, called as function(make_env=...,
    bonus=...); the wrappers of this package when left out."""


def run(arguments: Sequence[str]) -> int:
    """Reads the command line and examines."""
    return run_doctor(tyro.cli(DoctorConfig, args=arguments, prog="mimex doctor").target)
