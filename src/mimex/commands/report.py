"""`mimex report`: write an HTML page about some runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mimex.files import printable
from mimex.study.report import VIDEO_MEGABYTES, write_report


@dataclass(frozen=True)
class ReportConfig:
    """Write a self-contained HTML page about some runs."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, folders of run folders, or study folders."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The HTML file to write."""
    title: str | None = None
    """Page title; the folder's name by default."""
    video_mb: float = VIDEO_MEGABYTES
    """Maximum size of all embedded videos (MB); the page lists videos that did not fit."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command."""
    config = tyro.cli(ReportConfig, args=arguments, prog="mimex report")
    if not config.runs:
        raise ValueError("no runs: use mimex report RUNS... -o report.html")
    if config.out.is_dir():
        raise ValueError(f"--out {config.out} is a folder; expected the name of an HTML file")
    written = write_report(
        config.runs, config.out, title=config.title, video_megabytes=config.video_mb
    )
    print(f"{written.path}: {written.runs} runs, {written.bytes / 1e6:.1f} MB")
    if written.left_out:
        print(f"videos left out (see --video-mb): {printable(', '.join(written.left_out))}")
    return 0
