"""Where the agent was, and how novel it was there: maps and film strips for `mimex report`.

How a training loop uses it (``on_policy.py`` does): make one ``NoveltyMap``, of ``HandPlanes`` or,
for any other vectors, of ``PrincipalPlane``; keep it in the checkpoint; hand it the places of all
steps with their raw bonus, rollout by rollout or episode by episode; at each evaluation write what
gathered since the last one::

    places = NoveltyMap(PrincipalPlane())
    places.visit(states, bonus.reward(windows))  # (n, D) and (n,), in the order of steps
    write_record(folder.path, step, places, films(bonus, {"first": probe, "newest": newest}))

and, when a run continues, ``remove_after(folder.path, step)``. All of it is deterministic, so that
a run that was killed writes the same files again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mimex.train import checkpoint
from mimex.train.planes import Floats, Projection

FOLDER = "novelty"
"""Of the records, in the run folder."""


class NoveltyMap:
    """Visits and bonus of each cell of some planes since the last record.

    Args:
        projection: From places to planes.
    """

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        cells = [plane.cells for plane in projection.planes]
        self.visits = [np.zeros(c, np.int64) for c in cells]
        self.bonus = [np.zeros(c) for c in cells]  # summed over the visits
        self._ever = np.zeros(cells[0], bool)  # cells of the first plane that were ever visited
        # Until there are enough of them for the projection; None from then on.
        self._early: list[tuple[Floats, Floats]] | None = []

    def visit(self, places: Floats, bonus: Floats) -> None:
        """Takes in places ``(n, D)`` and the raw bonus ``(n,)`` that was paid there."""
        if len(places) == 0:
            return
        if self._early is not None:
            self._early.append((places.copy(), bonus.copy()))
            if sum(len(rows) for rows, _ in self._early) < self.projection.first_places:
                return
            places, bonus = (np.concatenate(part) for part in zip(*self._early, strict=True))
            self._early = None
        points = self.projection.points(places)
        for i, (plane, at) in enumerate(zip(self.projection.planes, points, strict=True)):
            flat = plane.flat_cells(at)
            inside, size = flat >= 0, plane.cells[0] * plane.cells[1]
            visits = np.bincount(flat[inside], minlength=size)
            paid = np.bincount(flat[inside], weights=bonus[inside], minlength=size)
            self.visits[i] += visits.reshape(plane.cells)
            self.bonus[i] += paid.reshape(plane.cells)
        self._ever |= self.visits[0] > 0

    @property
    def share(self) -> float:
        """The share of the first plane's cells that were visited since the run began."""
        return float(self._ever.mean())

    def take(self) -> list[dict[str, Any]]:
        """Each plane with its visits and its mean bonus (0 where nobody was), and starts anew."""
        planes = []
        for i, plane in enumerate(self.projection.planes):
            mean = self.bonus[i] / np.maximum(self.visits[i], 1)
            kept = {"visits": self.visits[i].astype(np.int32), "bonus": mean.astype(np.float32)}
            planes.append(asdict(plane) | kept)
            self.visits[i] = np.zeros_like(self.visits[i])
            self.bonus[i] = np.zeros_like(self.bonus[i])
        return planes

    def state_dict(self) -> dict[str, Any]:
        """The counts since the last record, and the projection."""
        return {
            "visits": [v.copy() for v in self.visits],
            "bonus": [b.copy() for b in self.bonus],
            "ever": self._ever.copy(),
            "early": None if self._early is None else list(self._early),
            "projection": self.projection.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self.visits = [v.copy() for v in state["visits"]]
        self.bonus = [b.copy() for b in state["bonus"]]
        self._ever = state["ever"].copy()
        self._early = None if state["early"] is None else list(state["early"])
        self.projection.load_state_dict(state["projection"])


def write_record(
    run: Path, step: int, novelty: NoveltyMap, films: list[dict[str, Any]] | None = None
) -> None:
    """Writes what gathered since the last record to the run folder, whole or not at all."""
    record = {"step": step, "planes": novelty.take(), "films": films or []}
    checkpoint.save(run / FOLDER / f"step_{step:012d}.safetensors", record)


def read_records(run: Path) -> list[dict[str, Any]]:
    """All records of a run folder, the oldest first; damaged ones are left out."""
    records = []
    for path in _records(run).values():
        try:
            record = checkpoint.load(path)
        except checkpoint.DamagedCheckpointError:
            continue
        if record.keys() >= {"step", "planes", "films"}:
            records.append(record)
    return records


def remove_after(run: Path, step: int) -> None:
    """Removes records that are newer than the step that a run continues from."""
    for recorded, path in _records(run).items():
        if recorded > step:
            path.unlink()


def _records(run: Path) -> dict[int, Path]:
    """The files of all records by step, in order."""
    names = (
        (re.fullmatch(r"step_(\d+)\.safetensors", p.name), p) for p in (run / FOLDER).glob("*")
    )
    return dict(sorted((int(found[1]), path) for found, path in names if found))
