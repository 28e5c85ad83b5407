"""Recordings of runs for the report: maps of visited states, reconstructions and videos."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mimex.files import ASIDE, read_own
from mimex.study.groups import Group
from mimex.study.report.curves import packed
from mimex.train.novelty import read_records

STAGES, FEWER_STAGES, MANY_GROUPS = 6, 3, 60
"""Maps per method: one for each sixth of training, or each third if there are many groups."""

MOMENTS = 6
"""Training steps of a run whose reconstructions are shown."""

RECONSTRUCTION_GROUPS = 40
"""Groups with reconstructions, each of one run and about 40 kB."""


def novelty(groups: Sequence[Group]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns maps of every group, and the reconstructions of its first run.

    Maps are summed over runs, unless each run has axes of its own: then the first run is used.
    """
    maps: list[dict[str, Any]] = []
    reconstructions: list[dict[str, Any]] = []
    stages = STAGES if len(groups) <= MANY_GROUPS else FEWER_STAGES
    for group in groups:
        records = [read_records(run.path) for run in group.runs]
        names = {"task": group.task, "method": group.label}
        planes, moments = _planes(records, stages), _moments(records[0])
        if planes:
            maps.append(names | {"planes": planes})
        if moments and len(reconstructions) < RECONSTRUCTION_GROUPS:
            reconstructions.append(names | {"run": group.runs[0].name, "moments": moments})
    return maps, reconstructions


def _planes(runs: Sequence[Sequence[dict[str, Any]]], count: int) -> list[dict[str, Any]]:
    """Returns the planes of the runs' records, each with a map for every stage of training."""
    first: Sequence[dict[str, Any]] = next(filter(None, runs), ())
    if not first:
        return []
    shared = all(plane.get("shared", True) for plane in first[0]["planes"])
    records = [record for run in runs for record in run] if shared else first
    last = max(record["step"] for record in records)
    # A record covers the steps before it: on the border of two stages it belongs to the first.
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
            bonus = np.sum([p["visits"] * p["bonus"].astype(float) for p in same], axis=0)
            cells = np.flatnonzero(visits)
            ever |= visits > 0
            maps.append(
                {
                    "until": int(last * end / count),
                    "cells": base64.b64encode(np.packbits(visits > 0).tobytes()).decode(),
                    "visits": packed(np.log(visits.ravel()[cells])),
                    "bonus": packed((bonus / np.maximum(visits, 1)).ravel()[cells]),
                    "coverage": float(ever.mean()),
                }
            )
        about = {key: plane[key] for key in ("name", "axes", "low", "high", "cells")}
        found.append(about | {"shared": shared, "maps": maps})
    return found


def _moments(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the reconstructions at evenly spaced steps of a run.

    Arrays have the shape ``(windows, length, features)``; a mask without the last axis masks whole
    time steps.
    """
    recorded = [record for record in records if record["films"]]
    chosen = np.linspace(0, len(recorded) - 1, min(MOMENTS, len(recorded))).round().astype(int)
    return [
        {
            "step": recorded[i]["step"],
            "batches": [
                {
                    "kind": batch["kind"],
                    "shape": list(batch["features"].shape),
                    "features": packed(batch["features"]),
                    "prediction": packed(batch["prediction"]),
                    "masked": batch["hidden"].int().flatten().tolist(),
                    "per_feature": batch["hidden"].ndim == 3,
                    "reward": batch["reward"].tolist(),
                }
                for batch in recorded[i]["films"]
            ],
        }
        for i in chosen
    ]


def videos(groups: Sequence[Group], megabytes: float) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the videos that fit, one of every group first, and the names of the others.

    Args:
        groups: Runs by task and method.
        megabytes: Limit on the total file size (MB); a page needs a third more for it.
    """
    found = []  # with the rank within the group, so that every group gets its first video
    for group in groups:
        paths = [(run, path) for run in group.runs for path in _finished(run.path / "videos")]
        found += [(rank, group, run, path) for rank, (run, path) in enumerate(paths)]
    room = megabytes * 1e6
    taken, left_out = [], []
    for _, group, run, path in sorted(found, key=lambda video: video[0]):
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
    """Returns the complete videos of a folder, without following symbolic links."""
    if folder.is_symlink():
        return []
    return sorted(
        path
        for path in folder.glob("*.mp4")
        if path.is_file() and not path.is_symlink() and not path.name.startswith(ASIDE)
    )
