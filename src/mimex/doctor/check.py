"""What the doctor finds, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.markup import escape
from rich.table import Table

Status = Literal["pass", "fail", "warn", "skip"]

COLOURS: dict[Status, str] = {"pass": "green", "fail": "bold red", "warn": "yellow", "skip": "dim"}


@dataclass(frozen=True)
class Check:
    """One question about a set-up and its answer.

    Attributes:
        name: The claim that was checked.
        status: ``fail`` means that training is wrong; ``warn`` that it may not be what you want;
            ``skip`` that it could not be checked.
        finding: What was seen.
        remedy: What to do about it; empty where all is well.
    """

    name: str
    status: Status
    finding: str
    remedy: str = ""


def judge(name: str, holds: bool, finding: str, remedy: str) -> Check:
    """A claim that holds, or that does not and can be remedied."""
    return Check(name, "pass", finding) if holds else Check(name, "fail", finding, remedy)


def all_well(checks: Iterable[Check]) -> bool:
    """Whether all was checked and passed: what was skipped is not well."""
    return all(check.status == "pass" for check in checks)


def table(title: str, checks: Sequence[Check]) -> Table:
    """The checks as a table for the terminal."""
    shown = Table(title=escape(title), title_justify="left", show_lines=True)
    for column in ("", "check", "finding", "remedy"):
        shown.add_column(column)
    for check in checks:
        colour = COLOURS[check.status]
        shown.add_row(
            f"[{colour}]{check.status}[/{colour}]",
            *map(escape, (check.name, check.finding, check.remedy)),
        )
    return shown
