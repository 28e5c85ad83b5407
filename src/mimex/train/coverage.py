"""Coverage of the workspace, and planes for novelty maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOW, HIGH = (0.0, -0.6, 0.0), (1.2, 0.6, 1.2)
"""Corners of the box that counts (m): the reach of both robots, whose base is at (1, 0, 0)."""

CELL = 0.05
"""Edge of a cell (m), about that of the tasks' cubes."""

PRINCIPAL_CELLS = 24
"""Cells along each principal axis, as many as along each axis of the hand's box."""

PRINCIPAL_EDGE = 3.0
"""Edge of the principal map in units of log(1 + |z|), z in early standard deviations: z = 19."""

FIRST_STATES = 2000
"""States that the principal axes are fitted to: as many as DrQ-v2's random first steps."""

SAME = 1e-9
"""States that deviate less than this along an axis are the same there."""

Floats = NDArray[np.floating[Any]]


class Coverage:
    """The share of a fixed grid's cells that some environment's hand has visited so far."""

    def __init__(self) -> None:
        self._low = np.array(LOW)
        cells = np.round((np.array(HIGH) - self._low) / CELL).astype(np.int64)
        self.visited = np.zeros(cells, bool)

    def visit(self, positions: NDArray[Any]) -> None:
        """Marks where hands are: positions ``(n, 3)`` in metres; those outside do not count."""
        cells = np.floor((positions - self._low) / CELL).astype(np.int64)
        inside = ((cells >= 0) & (cells < self.visited.shape)).all(axis=1)
        self.visited[tuple(cells[inside].T)] = True

    @property
    def share(self) -> float:
        """Visited cells over all."""
        return float(self.visited.mean())

    def state_dict(self) -> dict[str, Any]:
        """The visited cells."""
        return {"visited": self.visited.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        self.visited[:] = state["visited"]


@dataclass(frozen=True)
class Plane:
    """A rectangle of square cells that states are projected to."""

    name: str
    axes: tuple[str, str]
    low: tuple[float, float]
    high: tuple[float, float]
    cells: tuple[int, int]
    shared: bool = True  # the same for every run, so that maps of runs may be added up

    def flat_cells(self, points: Floats) -> NDArray[np.int64]:
        """The cell of each point ``(n, 2)``, counted row by row of the first axis; -1 outside."""
        low, high = np.array(self.low), np.array(self.high)
        cell = np.floor((points - low) / (high - low) * self.cells).astype(np.int64)
        inside = ((cell >= 0) & (cell < self.cells)).all(axis=1)
        flat: NDArray[np.int64] = np.where(inside, cell[:, 0] * self.cells[1] + cell[:, 1], -1)
        return flat


class Projection:
    """From positions ``(n, D)`` to points on planes."""

    planes: tuple[Plane, ...]
    first_positions = 1  # how many the first call of ``points`` wants

    def points(self, positions: Floats) -> list[Floats]:
        """Where positions are on each plane, ``(n, 2)`` each."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""


class HandPlanes(Projection):
    """Positions of the hand ``(n, 3)`` in metres, seen from above and from the side.

    The cells are those of ``Coverage``, summed over the third axis.
    """

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
    """States ``(n, D)`` along the two directions in which the run's first states differ most.

    The directions are fixed by the first call of ``points``, after each feature was divided by its
    std: angles and speeds have no common unit. Distances are in standard deviations of the
    first states, and shrink outwards like log(1 + |z|), because a policy that has learned goes far
    beyond where a random one was.

    Args:
        first_positions: How many the directions are fitted to.
    """

    def __init__(self, first_positions: int = FIRST_STATES) -> None:
        self.first_positions = first_positions
        names = ("first principal axis", "second principal axis")
        edge = PRINCIPAL_EDGE
        cells = (PRINCIPAL_CELLS, PRINCIPAL_CELLS)
        self.planes = (
            Plane("principal axes", names, (-edge, -edge), (edge, edge), cells, shared=False),
        )
        self._mean: NDArray[np.float64] | None = None  # (D,)
        self._directions = np.zeros((0, 2))  # (D, 2), each divided by its std

    def points(self, positions: Floats) -> list[Floats]:
        mean = self._fit(positions) if self._mean is None else self._mean
        z = (positions - mean) @ self._directions
        return [np.sign(z) * np.log1p(np.abs(z))]

    def _fit(self, positions: Floats) -> NDArray[np.float64]:
        mean: NDArray[np.float64] = np.mean(positions, axis=0, dtype=np.float64)
        spread = np.std(positions, axis=0, dtype=np.float64)
        units = np.where(spread > SAME, spread, np.inf)  # what never differs has no say
        _, sizes, directions = np.linalg.svd((positions - mean) / units, full_matrices=False)
        self._mean = mean
        self._directions = np.zeros((positions.shape[1], 2))
        for axis, (size, direction) in enumerate(zip(sizes[:2], directions[:2], strict=True)):
            # An SVD leaves the sign open; the largest number is made positive.
            direction = direction * np.sign(direction[np.abs(direction).argmax()])
            std = size / np.sqrt(len(positions))
            if std > SAME:
                self._directions[:, axis] = direction / std / units
        return mean

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self._mean, "directions": self._directions}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._mean, self._directions = state["mean"], state["directions"]
