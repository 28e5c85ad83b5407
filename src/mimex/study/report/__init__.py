"""The report: one HTML page about some runs that needs neither a server nor network access.

Tables that never change are rendered by Jinja; everything with a legend, a slider or a tooltip is
drawn in the browser from JSON that is embedded in the page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mimex.files import replacing
from mimex.study.figures import styles
from mimex.study.folder import group_as_planned
from mimex.study.groups import bounds, seed_count
from mimex.study.report.curves import WITH_INTERVAL, buckets_for, group_curves, metric_names
from mimex.study.report.media import novelty, videos
from mimex.study.report.tables import (
    aggregate,
    compared_settings,
    overview,
    versions,
    warnings,
)
from mimex.study.runs import Run, find_runs
from mimex.study.survival import first_rewards

SCRIPTS = ("base", "plot", "overview", "curves", "maps", "reconstructions", "start")
"""JavaScript files of the page, in the order in which they have to be read."""

VIDEO_MEGABYTES = 6.0
"""Default limit on embedded videos, which keeps a page below 15 MB."""


class Written(NamedTuple):
    """A report that was written."""

    path: Path
    runs: int
    bytes: int
    left_out: list[str]  # videos that exceeded the size limit


def write_report(
    paths: Sequence[Path | str],
    out: Path,
    *,
    title: str | None = None,
    video_megabytes: float = VIDEO_MEGABYTES,
) -> Written:
    """Writes the report of some runs.

    Args:
        paths: Run folders, folders of run folders, or study folders.
        out: The HTML file, replaced atomically.
        title: Page title; the name of the first folder by default.
        video_megabytes: Limit on the total size of embedded videos (MB).
    """
    if not video_megabytes >= 0:
        raise ValueError(f"--video-mb is {video_megabytes}, but must be 0 or more")
    runs = find_runs(paths)
    content = gather(runs, title or _title([Path(path) for path in paths]), video_megabytes)
    page = render(content)
    with replacing(out) as aside:
        aside.write_text(page, encoding="utf-8")
    return Written(out, len(runs), len(page.encode()), content["left_out"])


def gather(runs: Sequence[Run], title: str, video_megabytes: float) -> dict[str, Any]:
    """Returns the variables of the page template; ``charts`` is what the page's script reads."""
    groups, score = group_as_planned(runs)
    methods = styles(list(dict.fromkeys(group.label for group in groups)))
    metrics = metric_names(runs)
    buckets = buckets_for(groups, metrics)
    maps, reconstructions = novelty(groups)
    shown, left_out = videos(groups, video_megabytes)
    return {
        "title": title,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": version("mimex"),
        "runs": len(runs),
        "seeds": seed_count(groups),
        "unfinished": [run.name for run in runs if not run.finished],
        "styles": methods,
        "health": warnings(runs),
        "settings": compared_settings(groups),
        "videos": shown,
        "left_out": left_out,
        "versions": versions(runs),
        "charts": {
            "score": score,
            "methods": [{"label": label} | style._asdict() for label, style in methods.items()],
            "tasks": list(dict.fromkeys(group.task for group in groups)),
            "overview": overview(groups, score),
            "aggregate": aggregate(groups, score),
            "first_rewards": [row._asdict() for row in first_rewards(groups)],
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
            "maps": maps,
            "reconstructions": reconstructions,
        },
    }


def render(content: dict[str, Any]) -> str:
    """Renders the page. Every value is escaped, so that no name can become markup or code."""
    environment = Environment(
        loader=PackageLoader(__package__, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    script = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    # The browser runs only this script, and fetches nothing.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; media-src data:"
    )
    return environment.get_template("page.html").render(
        content, policy=policy, style=Markup(_asset("page.css")), script=Markup(script)
    )


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _title(paths: Sequence[Path]) -> str:
    names = [path.resolve().name for path in paths]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
