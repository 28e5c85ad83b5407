"""Coverage, novelty maps and reconstructions, for reports.

``Novelty`` records the environments' positions and maps the raw bonus of their steps; at each
evaluation it writes the map since the last one. All of it is deterministic, so that a resumed run
writes the same files again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from mimex.contracts import Agent, Callback, Located, Step
from mimex.nn import processes
from mimex.train import checkpoint
from mimex.train.coverage import (
    FIRST_STATES,
    Coverage,
    Floats,
    HandPlanes,
    PrincipalPlane,
    Projection,
)
from mimex.train.reconstructions import reconstructions
from mimex.types import Array, Metrics, Window

FOLDER = "novelty"
"""Of the records, in the run folder."""


class Novelty(Callback):
    """Records positions, and maps the bonus of steps.

    Positions are reported by the environments (``contracts.Located``), or are the observations.
    They stay on the environments' device, and are read once per row.

    Args:
        env: The environments.
        first_states: How many states the principal axes of a map are fitted to.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], first_states: int = FIRST_STATES) -> None:
        simulation = env.unwrapped
        self._located = simulation if isinstance(simulation, Located) else None
        hand = self._located is not None and self._located.position_kind == "hand"
        self._observed = not hand and observes_numbers(env)
        self.coverage = Coverage() if hand else None
        self.map = NoveltyMap(HandPlanes() if hand else PrincipalPlane(first_states))
        self._positions: list[Tensor] = []  # (N, d) each: one, and one more after each step
        self._ended: list[Tensor] = []  # (N,) bool each
        self.newest: Window | None = None  # the most novel windows that were scored last

    def _now(self, observation: Any) -> Tensor:
        if self._observed:
            return _kept(observation).float()
        assert self._located is not None
        return _kept(self._located.positions())

    def begin(self, observation: Any) -> None:
        """Forgets the positions of steps that were not scored."""
        self._cover()
        self._positions, self._ended = [self._now(observation)], []

    def _cover(self) -> None:
        """Takes where the steps led to into the coverage."""
        if self.coverage is not None and self._positions[1:]:
            self.coverage.visit(np.concatenate(_read(self._positions[1:])))

    def step(self, step: Step) -> None:
        """Notes where the step led to."""
        self._positions.append(self._now(step.next_observation))
        self._ended.append(_kept(step.ended))

    def metrics(self, agent: Agent) -> Metrics:
        """Adds the bonus of the newest steps to the map; returns the coverage so far."""
        scored = agent.scored()
        if scored is not None:
            # Where an episode ended the environment has been reset: where it was is not known.
            known = np.ones(scored.bonus.shape, bool)
            if scored.after:
                known = ~_read(self._ended)[scored.rounds]
            positions = _read(self._positions)[scored.rounds + scored.after]
            known, positions, bonus = map(_of_all, (known, positions, scored.bonus))
            self.map.visit(positions[known], bonus[known])
            self.newest = scored.most_novel
        if self.coverage is not None:
            self._cover()
            self.coverage.visited = np.any(_of_all(self.coverage.visited[:, None]), axis=1)
        self._positions, self._ended = self._positions[-1:], []
        share = self.map.share if self.coverage is None else self.coverage.share
        return {"explore/coverage": share}

    def record(self, run: Path | None, step: int, agent: Agent) -> None:
        """Writes the map and the film strips since the last record."""
        if run is None:
            self.map.take()
            return
        strips = reconstructions(agent.bonus, {"first": agent.probe, "newest": self.newest})
        write_record(run, step, self.map, strips)

    def state_dict(self) -> dict[str, Any]:
        """Coverage, map, the positions since the last row, and the newest windows."""
        return {
            "coverage": None if self.coverage is None else self.coverage.state_dict(),
            "map": self.map.state_dict(),
            "positions": list(self._positions),
            "ended": list(self._ended),
            "newest": None if self.newest is None else vars(self.newest),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        if self.coverage is not None:
            self.coverage.load_state_dict(state["coverage"])
        self.map.load_state_dict(state["map"])
        self._positions = [torch.as_tensor(positions) for positions in state["positions"]]
        self._ended = [torch.as_tensor(ended) for ended in state["ended"]]
        self.newest = None if state["newest"] is None else Window(**state["newest"])


def _kept(values: Array) -> Tensor:
    """A copy of arrays of NumPy or of tensors, where they are."""
    return values.clone() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))


def _read(kept: list[Tensor]) -> NDArray[Any]:
    """What was kept ``(N, ...)``, one after the other, ``(n, N, ...)``."""
    found: NDArray[Any] = torch.stack([one.to(kept[-1].device) for one in kept]).cpu().numpy()
    return found


def _of_all(values: NDArray[Any]) -> NDArray[Any]:
    """Arrays ``(n, N, ...)`` of all processes, concatenated along the second dimension."""
    if processes.size() == 1:
        return values
    bits = torch.from_numpy(values.view(np.uint8) if values.dtype == bool else values)
    found: NDArray[Any] = processes.all_gather(bits, dim=1).numpy().view(values.dtype)
    return found


def observes_numbers(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether observations are vectors, which can be used as positions."""
    space = env.single_observation_space
    return space.shape is not None and len(space.shape) == 1


class NoveltyMap:
    """Visits and bonus of each cell of some planes since the last record.

    Args:
        projection: From positions to planes.
    """

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        cells = [plane.cells for plane in projection.planes]
        self.visits = [np.zeros(c, np.int64) for c in cells]
        self.bonus = [np.zeros(c) for c in cells]  # summed over the visits
        self._ever = np.zeros(cells[0], bool)  # cells of the first plane that were ever visited
        # Until there are enough of them for the projection; None from then on.
        self._early: list[tuple[Floats, Floats]] | None = []

    def visit(self, positions: Floats, bonus: Floats) -> None:
        """Adds positions ``(n, D)`` and their raw bonus ``(n,)``."""
        if len(positions) == 0:
            return
        if self._early is not None:
            self._early.append((positions.copy(), bonus.copy()))
            if sum(len(rows) for rows, _ in self._early) < self.projection.first_positions:
                return
            positions, bonus = (np.concatenate(part) for part in zip(*self._early, strict=True))
            self._early = None
        points = self.projection.points(positions)
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
        """Restores a state of ``state_dict``."""
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
