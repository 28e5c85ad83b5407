"""How much of the space before the robot its hand has been to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOW, HIGH = (0.0, -0.6, 0.0), (1.2, 0.6, 1.2)
"""Corners of the box that counts (m): the reach of both robots, whose base is at (1, 0, 0)."""

CELL = 0.05
"""Edge of a cell (m), about that of the tasks' cubes."""


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
        """Continues from a state that ``state_dict`` gave."""
        self.visited[:] = state["visited"]
