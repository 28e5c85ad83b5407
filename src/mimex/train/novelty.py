"""Coverage, novelty maps and reconstructions, recorded for reports.

``Novelty`` counts the visits of cells and averages the raw bonus there, and writes a record at each
evaluation. Records are deterministic, so that a resumed run writes the same files again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from mimex.bonus.base import IntrinsicReward
from mimex.contracts import SHOWN_WINDOWS, Agent, Callback, Located, Step
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
from mimex.types import Array, Metrics, Window

FOLDER = "novelty"
"""Subfolder of the run folder."""

MAX_FEATURES = 64
"""Maximum number of features per reconstruction."""


class Novelty(Callback):
    """Records positions, and the bonus at each of them.

    Positions are reported by the environments (``contracts.Located``), or are the observations.
    They stay on the environments' device until the next row of metrics.

    Args:
        env: The environments.
        first_states: Number of states that the principal axes of a map are fitted to.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], first_states: int = FIRST_STATES) -> None:
        simulation = env.unwrapped
        self._located = simulation if isinstance(simulation, Located) else None
        hand = self._located is not None and self._located.position_kind == "hand"
        self._use_observations = not hand and has_vector_observations(env)
        self.coverage = Coverage() if hand else None
        self.map = NoveltyMap(HandPlanes() if hand else PrincipalPlane(first_states))
        self._positions: list[Tensor] = []  # (N, d) each: before the first step, after each step
        self._ended: list[Tensor] = []  # (N,) bool for each step
        self.newest: Window | None = None  # the most novel windows of the last update

    def _current(self, observation: Any) -> Tensor:
        if self._use_observations:
            return _copy(observation).float()
        assert self._located is not None
        return _copy(self._located.positions())

    def begin(self, observation: Any) -> None:
        self._update_coverage()
        self._positions, self._ended = [self._current(observation)], []

    def _update_coverage(self) -> None:
        if self.coverage is not None and self._positions[1:]:
            self.coverage.visit(np.concatenate(_stack(self._positions[1:])))

    def step(self, step: Step) -> None:
        self._positions.append(self._current(step.next_observation))
        self._ended.append(_copy(step.ended))

    def metrics(self, agent: Agent) -> Metrics:
        """Adds the bonus of the newest steps to the map; returns the coverage."""
        scored = agent.scored()
        if scored is not None:
            known = np.ones(scored.bonus.shape, bool)
            if scored.after:  # the position at the end of an episode is lost by the reset
                known = ~_stack(self._ended)[scored.rounds]
            positions = _stack(self._positions)[scored.rounds + scored.after]
            known, positions, bonus = map(_all_gather, (known, positions, scored.bonus))
            self.map.visit(positions[known], bonus[known])
            self.newest = scored.most_novel
        if self.coverage is not None:
            self._update_coverage()
            self.coverage.visited = np.any(_all_gather(self.coverage.visited[:, None]), axis=1)
        self._positions, self._ended = self._positions[-1:], []
        fraction = self.map.coverage if self.coverage is None else self.coverage.fraction
        return {"explore/coverage": fraction}

    def record(self, run: Path | None, step: int, agent: Agent) -> None:
        """Writes the map since the last record, and reconstructions."""
        if run is None:
            self.map.take()
            return
        windows = {"first": agent.probe, "newest": self.newest}
        write_record(run, step, self.map, reconstructions(agent.bonus, windows))

    def state_dict(self) -> dict[str, Any]:
        return {
            "coverage": None if self.coverage is None else self.coverage.state_dict(),
            "map": self.map.state_dict(),
            "positions": list(self._positions),
            "ended": list(self._ended),
            "newest": None if self.newest is None else vars(self.newest),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.coverage is not None:
            self.coverage.load_state_dict(state["coverage"])
        self.map.load_state_dict(state["map"])
        self._positions = [torch.as_tensor(positions) for positions in state["positions"]]
        self._ended = [torch.as_tensor(ended) for ended in state["ended"]]
        self.newest = None if state["newest"] is None else Window(**state["newest"])


def has_vector_observations(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether observations are vectors, which can be used as positions."""
    space = env.single_observation_space
    return space.shape is not None and len(space.shape) == 1


def _copy(values: Array) -> Tensor:
    """Copies an array to a tensor on the same device."""
    return values.clone() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))


def _stack(tensors: list[Tensor]) -> NDArray[Any]:
    """Stacks tensors ``(N, ...)`` to a NumPy array ``(n, N, ...)``."""
    device = tensors[-1].device
    stacked: NDArray[Any] = torch.stack([one.to(device) for one in tensors]).cpu().numpy()
    return stacked


def _all_gather(values: NDArray[Any]) -> NDArray[Any]:
    """Concatenates arrays ``(n, N, ...)`` of all processes along the second dimension."""
    if processes.size() == 1:
        return values
    tensor = torch.from_numpy(values.view(np.uint8) if values.dtype == bool else values)
    gathered: NDArray[Any] = processes.all_gather(tensor, dim=1).numpy().view(values.dtype)
    return gathered


class NoveltyMap:
    """Visits and bonus of each cell of some planes since the last record.

    Args:
        projection: Maps positions to planes.
    """

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        cells = [plane.cells for plane in projection.planes]
        self.visits = [np.zeros(c, np.int64) for c in cells]
        self.bonus = [np.zeros(c) for c in cells]  # summed over the visits
        self._ever = np.zeros(cells[0], bool)  # cells of the first plane visited during the run
        # Positions before the projection can be fitted; None afterwards.
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
            total = np.bincount(flat[inside], weights=bonus[inside], minlength=size)
            self.visits[i] += visits.reshape(plane.cells)
            self.bonus[i] += total.reshape(plane.cells)
        self._ever |= self.visits[0] > 0

    @property
    def coverage(self) -> float:
        """Fraction of the first plane's cells that were visited during the run."""
        return float(self._ever.mean())

    def take(self) -> list[dict[str, Any]]:
        """Returns the planes with visits and mean bonus (0 without visits), and resets both."""
        planes = []
        for i, plane in enumerate(self.projection.planes):
            mean = self.bonus[i] / np.maximum(self.visits[i], 1)
            counts = {"visits": self.visits[i].astype(np.int32), "bonus": mean.astype(np.float32)}
            planes.append(asdict(plane) | counts)
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


@runtime_checkable
class Reconstructs(Protocol):
    """A bonus that reconstructs masked inputs."""

    def inputs(self, window: Window) -> Tensor:
        """The network's inputs ``(B, L, D)``."""

    def reconstruct(self, window: Window) -> tuple[Tensor, Tensor]:
        """The mask, ``(B, L)`` or ``(B, L, D)``, and the prediction ``(B, L, D)``."""


def reconstructions(
    bonus: IntrinsicReward, windows: Mapping[str, Window | None]
) -> list[dict[str, Any]]:
    """Returns the bonus's reconstructions of windows, by kind; empty if it has none."""
    if not isinstance(bonus, Reconstructs):
        return []
    found = []
    for kind, window in windows.items():
        if window is None:
            continue
        full = window[window.valid.all(dim=1).nonzero().flatten()[:SHOWN_WINDOWS]]
        if len(full) == 0:
            continue
        masked, prediction = bonus.reconstruct(full)
        inputs = bonus.inputs(full)
        # Of many features, those with the largest variance.
        variance = inputs.flatten(0, 1).var(dim=0, correction=0)
        kept = variance.topk(min(MAX_FEATURES, len(variance))).indices.sort().values
        found.append(
            {
                "kind": kind,
                "numbers": kept.to(torch.int32),
                "features": inputs[..., kept],
                "hidden": masked if masked.ndim == 2 else masked[..., kept],
                "prediction": prediction.detach()[..., kept],
                "reward": bonus.reward(full),
            }
        )
    return found


def write_record(
    run: Path, step: int, novelty: NoveltyMap, reconstructions: list[dict[str, Any]] | None = None
) -> None:
    """Writes a record to the run folder, atomically."""
    record = {"step": step, "planes": novelty.take(), "films": reconstructions or []}
    checkpoint.save(run / FOLDER / f"step_{step:012d}.safetensors", record)


def read_records(run: Path) -> list[dict[str, Any]]:
    """Returns all intact records of a run folder, in order of steps."""
    records = []
    for _, path in sorted(checkpoint.step_files(run / FOLDER).items()):
        try:
            record = checkpoint.load(path)
        except checkpoint.DamagedCheckpointError:
            continue
        if record.keys() >= {"step", "planes", "films"}:
            records.append(record)
    return records


def remove_after(run: Path, step: int) -> None:
    """Removes records after the step that a run resumes from."""
    for recorded, path in checkpoint.step_files(run / FOLDER).items():
        if recorded > step:
            path.unlink()
