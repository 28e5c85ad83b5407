"""Coverage of the workspace, and projections for novelty maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOW, HIGH = (0.0, -0.6, 0.0), (1.2, 0.6, 1.2)
"""Corners of the workspace (m): the reach of both robots, whose base is at (1, 0, 0)."""

CELL = 0.05
"""Edge of a cell (m), about that of the tasks' cubes."""

PRINCIPAL_CELLS = 24
"""Cells along each principal axis, as many as along each axis of the workspace."""

PRINCIPAL_EDGE = 3.0
"""Edge of the principal map in units of log(1 + |z|), z in initial standard deviations: z = 19."""

FIRST_STATES = 2000
"""States that the principal axes are fitted to, as many as DrQ-v2's random first steps."""

MIN_STD = 1e-9
"""Axes with a smaller standard deviation are treated as constant."""

Floats = NDArray[np.floating[Any]]


class Coverage:
    """Fraction of the workspace's cells that any environment's hand has visited."""

    def __init__(self) -> None:
        self._low = np.array(LOW)
        cells = np.round((np.array(HIGH) - self._low) / CELL).astype(np.int64)
        self.visited = np.zeros(cells, bool)

    def visit(self, positions: NDArray[Any]) -> None:
        """Marks the cells of hand positions ``(n, 3)`` (m); those outside are ignored."""
        cells = np.floor((positions - self._low) / CELL).astype(np.int64)
        inside = ((cells >= 0) & (cells < self.visited.shape)).all(axis=1)
        self.visited[tuple(cells[inside].T)] = True

    @property
    def fraction(self) -> float:
        """Visited cells divided by all cells."""
        return float(self.visited.mean())

    def state_dict(self) -> dict[str, Any]:
        """The visited cells."""
        return {"visited": self.visited.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        self.visited[:] = state["visited"]


@dataclass(frozen=True)
class Plane:
    """A grid of cells that states are projected to."""

    name: str
    axes: tuple[str, str]
    low: tuple[float, float]
    high: tuple[float, float]
    cells: tuple[int, int]
    shared: bool = True  # the same for all runs, whose maps may then be summed

    def flat_cells(self, points: Floats) -> NDArray[np.int64]:
        """Flat cell indices of points ``(n, 2)``, in row-major order; -1 outside."""
        low, high = np.array(self.low), np.array(self.high)
        cell = np.floor((points - low) / (high - low) * self.cells).astype(np.int64)
        inside = ((cell >= 0) & (cell < self.cells)).all(axis=1)
        flat: NDArray[np.int64] = np.where(inside, cell[:, 0] * self.cells[1] + cell[:, 1], -1)
        return flat


class Projection:
    """Maps positions ``(n, D)`` to points on planes."""

    planes: tuple[Plane, ...]
    first_positions = 1  # number of positions that the first call of ``points`` needs

    def points(self, positions: Floats) -> list[Floats]:
        """Points ``(n, 2)`` on each plane."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""


class HandPlanes(Projection):
    """Hand positions ``(n, 3)`` (m) from above and from the side, on the grid of ``Coverage``."""

    def __init__(self) -> None:
        self._axes = ((0, 1), (0, 2))
        size = np.round((np.array(HIGH) - np.array(LOW)) / CELL).astype(int).tolist()
        self.planes = tuple(
            Plane(
                name,
                (f"{'xyz'[a]} (m)", f"{'xyz'[b]} (m)"),
                (LOW[a], LOW[b]),
                (HIGH[a], HIGH[b]),
                (size[a], size[b]),
            )
            for name, (a, b) in zip(("from above", "from the side"), self._axes, strict=True)
        )

    def points(self, positions: Floats) -> list[Floats]:
        return [positions[:, axes] for axes in self._axes]


class PrincipalPlane(Projection):
    """States ``(n, D)`` along the first two principal components of the run's first states.

    The components are fitted by the first call of ``points``, to features divided by their standard
    deviation. Distances z, in standard deviations, are compressed to log(1 + |z|), because a
    trained policy goes far beyond the states of a random one.

    Args:
        first_positions: Number of states that the components are fitted to.
    """

    def __init__(self, first_positions: int = FIRST_STATES) -> None:
        self.first_positions = first_positions
        axes = ("first principal axis", "second principal axis")
        edge, cells = PRINCIPAL_EDGE, (PRINCIPAL_CELLS, PRINCIPAL_CELLS)
        self.planes = (
            Plane("principal axes", axes, (-edge, -edge), (edge, edge), cells, shared=False),
        )
        self._mean: NDArray[np.float64] | None = None  # (D,)
        self._directions = np.zeros((0, 2))  # (D, 2), each divided by its std

    def points(self, positions: Floats) -> list[Floats]:
        mean = self._fit(positions) if self._mean is None else self._mean
        z = (positions - mean) @ self._directions
        return [np.sign(z) * np.log1p(np.abs(z))]

    def _fit(self, positions: Floats) -> NDArray[np.float64]:
        mean: NDArray[np.float64] = np.mean(positions, axis=0, dtype=np.float64)
        std = np.std(positions, axis=0, dtype=np.float64)
        units = np.where(std > MIN_STD, std, np.inf)  # constant features are ignored
        _, sizes, directions = np.linalg.svd((positions - mean) / units, full_matrices=False)
        self._mean = mean
        self._directions = np.zeros((positions.shape[1], 2))
        for axis, (size, direction) in enumerate(zip(sizes[:2], directions[:2], strict=True)):
            # The sign of an SVD is arbitrary: make the largest component positive.
            direction = direction * np.sign(direction[np.abs(direction).argmax()])
            axis_std = size / np.sqrt(len(positions))
            if axis_std > MIN_STD:
                self._directions[:, axis] = direction / axis_std / units
        return mean

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self._mean, "directions": self._directions}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._mean, self._directions = state["mean"], state["directions"]
