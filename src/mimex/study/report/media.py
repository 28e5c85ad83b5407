"""What runs recorded beside numbers, for the page: novelty maps, film strips, videos."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mimex.files import ASIDE, read_own
from mimex.study.groups import Group
from mimex.study.report.curves import packed
from mimex.train.novelty import FOLDER, read_records

STAGES, FEWER_STAGES, MANY_GROUPS = 6, 3, 60
"""Maps of a method: one for each sixth of the training, or third where there are many groups."""

FILMS = 6
"""Moments of a run whose film strips are shown."""

FILM_GROUPS = 40
"""Groups with film strips: of one run each, about 40 kB."""


def novelty(groups: Sequence[Group]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Maps, one set a group, and film strips of a group's first run.

    Maps are of all runs together, or of the first where every run has axes of its own.
    """
    maps: list[dict[str, Any]] = []
    films: list[dict[str, Any]] = []
    for group in groups:
        records = [read_records(run.path) for run in group.runs]
        names = {"task": group.task, "method": group.label}
        stages = STAGES if len(groups) <= MANY_GROUPS else FEWER_STAGES
        try:
            planes = _planes(records, stages)
            moments = _moments(records[0])
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            folders = ", ".join(str(run.path / FOLDER) for run in group.runs)
            raise ValueError(
                f"a record in {folders} has no maps and films of a run ({error!r}): restore or "
                "remove it."
            ) from error
        if planes:
            maps.append(names | {"planes": planes})
        if moments and len(films) < FILM_GROUPS:
            films.append(names | {"run": group.runs[0].name, "moments": moments})
    return maps, films


def _planes(runs: Sequence[Sequence[dict[str, Any]]], count: int) -> list[dict[str, Any]]:
    """The planes of the runs' records, each with a map for every stage of the training."""
    first: Sequence[dict[str, Any]] = next(filter(None, runs), ())
    if not first:
        return []
    shared = all(plane.get("shared", True) for plane in first[0]["planes"])
    records = [record for run in runs for record in run] if shared else first
    last = max(record["step"] for record in records)
    # A record is of the steps before it: on the edge of two stages it belongs to the first.
    stages: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    for record in records:
        stages[max(0, int(np.ceil(record["step"] / last * count)) - 1)].append(record)
    found = []
    for number, plane in enumerate(records[0]["planes"]):
        maps = []
        ever = np.zeros(plane["cells"], bool)
        for end, part in enumerate(stages, start=1):
            if not part:
                continue
            same = [record["planes"][number] for record in part]
            visits = np.sum([p["visits"] for p in same], axis=0, dtype=np.int64)
            paid = np.sum([p["visits"] * p["bonus"].astype(float) for p in same], axis=0)
            cells = np.flatnonzero(visits)
            ever |= visits > 0
            maps.append(
                {
                    "until": int(last * end / count),
                    "cells": base64.b64encode(np.packbits(visits > 0).tobytes()).decode(),
                    "visits": packed(np.log(visits.ravel()[cells])),
                    "bonus": packed((paid / np.maximum(visits, 1)).ravel()[cells]),
                    "coverage": float(ever.mean()),
                }
            )
        about = {key: plane[key] for key in ("name", "axes", "low", "high", "cells")}
        found.append(about | {"shared": shared, "maps": maps})
    return found


def _moments(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Film strips of some moments of a run, from its beginning to its end."""
    with_films = [record for record in records if record["films"]]
    count = min(FILMS, len(with_films))
    chosen = np.linspace(0, len(with_films) - 1, count).round().astype(int)
    return [_moment(with_films[i]) for i in chosen]


def _moment(record: dict[str, Any]) -> dict[str, Any]:
    """A record's film strips: windows, length and numbers in the order of the packed arrays."""
    return {
        "step": record["step"],
        "films": [
            {
                "kind": film["kind"],
                "shape": list(film["features"].shape),
                "numbers": film["numbers"].tolist(),
                "features": packed(film["features"]),
                "prediction": packed(film["prediction"]),
                "hidden": film["hidden"].int().flatten().tolist(),
                "by_number": film["hidden"].ndim == 3,
                "reward": film["reward"].tolist(),
            }
            for film in record["films"]
        ],
    }


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
