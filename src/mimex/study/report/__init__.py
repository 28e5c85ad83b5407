"""The report: runs as one page that needs neither server nor network.

The data goes into the page as JSON, beside the page's own text and code.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mimex.files import replacing
from mimex.study.folder import group_as_planned
from mimex.study.groups import bounds
from mimex.study.panels import styles
from mimex.study.report.curves import WITH_INTERVAL, buckets_for, group_curves, metric_names
from mimex.study.report.media import novelty, videos
from mimex.study.report.tables import (
    ablations,
    aggregate,
    compared_settings,
    complaints,
    overview,
    versions,
)
from mimex.study.runs import Run, find_runs
from mimex.study.survival import first_rewards

SCRIPTS = (
    "base.js",
    "plot.js",
    "overview.js",
    "curves.js",
    "maps.js",
    "films.js",
    "details.js",
    "start.js",
)
"""The page's code, in the order in which it has to be read."""

VIDEO_MEGABYTES = 6.0
"""Room for videos, so that a page stays below 15 MB."""


@dataclass(frozen=True)
class Written:
    """What a report came to."""

    path: Path
    runs: int
    bytes: int
    left_out: list[str]
    """Videos that there was no room for."""


def write_report(
    paths: Sequence[Path | str],
    out: Path,
    *,
    title: str | None = None,
    video_megabytes: float = VIDEO_MEGABYTES,
) -> Written:
    """Writes the report of some runs.

    Args:
        paths: Run folders, folders of run folders, or folders of studies.
        out: The HTML file, which appears under its name only when it is complete.
        title: Of the page; by default the name of what it is about.
        video_megabytes: Room for videos (MB).

    Raises:
        FileNotFoundError: If a path has no runs.
    """
    if not video_megabytes >= 0:
        raise ValueError(f"--video-mb is {video_megabytes}, but must be 0 or more")
    runs = find_runs(paths)
    title = title or _title([Path(path) for path in paths])
    data = gather(runs, title, video_megabytes)
    page = render(data)
    with replacing(out) as aside:
        aside.write_text(page, encoding="utf-8")
    return Written(out, len(runs), len(page.encode()), data["left_out"])


def gather(runs: Sequence[Run], title: str, video_megabytes: float) -> dict[str, Any]:
    """All that the page shows, as JSON-able values."""
    groups, score = group_as_planned(runs)
    metrics = metric_names(runs)
    buckets = buckets_for(groups, metrics)
    rows = overview(groups, score)
    maps, films = novelty(groups)
    shown, left_out = videos(groups, video_megabytes)
    methods = list(dict.fromkeys(group.label for group in groups))
    return {
        "title": title,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": version("mimex"),
        "runs": len(runs),
        "unfinished": [run.name for run in runs if not run.finished],
        "score": score,
        "methods": [
            {"label": label, "colour": style.colour, "dashes": style.dashes}
            for label, style in styles(methods).items()
        ],
        "tasks": list(dict.fromkeys(group.task for group in groups)),
        "overview": rows,
        "aggregate": aggregate(groups, score),
        "first_rewards": [asdict(row) for row in first_rewards(groups)],
        "metrics": [
            {
                "name": name,
                "interval": name.startswith(WITH_INTERVAL),
                "rate": bounds(name) == (0, 1),
            }
            for name in metrics
        ],
        "curves": [
            {
                "task": group.task,
                "method": group.label,
                "metrics": group_curves(group, metrics, buckets),
            }
            for group in groups
        ],
        "health": complaints(runs),
        "maps": maps,
        "films": films,
        "ablations": ablations(groups, rows),
        "settings": compared_settings(groups),
        "videos": shown,
        "left_out": left_out,
        "versions": versions(runs),
    }


def render(data: dict[str, Any]) -> str:
    """The page with its data in it; nothing of the data can become markup or code."""
    assets = resources.files(__package__) / "assets"
    script = "\n".join((assets / name).read_text(encoding="utf-8") for name in SCRIPTS)
    # Only this very script may run, and nothing may be fetched.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; media-src data:"
    )
    parts = {
        "title": html.escape(data["title"]),
        "policy": policy,
        "style": (assets / "page.css").read_text(encoding="utf-8"),
        "script": script,
        # In a script element only "<" could end it or begin a comment.
        "data": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
    }
    page = (assets / "page.html").read_text(encoding="utf-8")
    before, *pieces = page.split("{{")
    filled = [before]
    for piece in pieces:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def _title(paths: Sequence[Path]) -> str:
    names = [path.resolve().name for path in paths]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
