"""Small games of motion whose only difficulty is exploration: a maze, a car with a flag."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mimex.envs.small import Array, Rows, SmallGame

MAZE = (
    "#######",
    "#     #",
    "##### #",
    "#     #",
    "# #####",
    "#     #",
    "#######",
)
"""Seen from above; the way leads from the upper left to the lower right, 16 cells long."""


def way_back(wall: Array, goal: tuple[int, int]) -> list[tuple[int, int]]:
    """Cells of a maze that is one corridor, from its end to its start."""
    way = [goal]
    for row, column in way:  # which grows by what is beside its last
        beside = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        way += [cell for cell in beside if not wall[cell] and cell not in way]
    return way


class PointMaze(SmallGame):
    """A point moves through a winding maze; 1 is paid at its far end, and nothing before.

    The observation is the place, each coordinate from -1 to 1; the two actions are the speed along
    each. Walls stop a point, across them and not along them. Moving at random it stays in the first
    corridor.

    Args:
        num_envs: How many copies.
        speed: Cells that a point moves in a step at most, along each coordinate.
        episode_steps: Steps of an episode.
        dense: Pay for the way, too, 1 for the whole of it; going back costs as much.
    """

    ends_when_solved = True

    def __init__(
        self,
        num_envs: int = 1,
        speed: float = 0.25,
        episode_steps: int = 150,
        dense: bool = False,
    ) -> None:
        if not 0 < speed <= 1:
            raise ValueError(f"speed is {speed}, but must be above 0 and at most 1 (a wall)")
        box = spaces.Box(-1.0, 1.0, (2,), np.float32)
        super().__init__(num_envs, box, box, episode_steps, {"place": np.zeros(2)})
        self.speed, self.dense = speed, dense
        self.wall = np.array([[cell == "#" for cell in row] for row in MAZE])
        self.goal = np.array(self.wall.shape) - 2  # the cell in the lower right
        way = np.array(way_back(self.wall, (int(self.goal[0]), int(self.goal[1]))))
        steps = np.diff(way, axis=0, prepend=way[:1], append=way[-1:])
        at = tuple(way.T)  # of each cell: how many are to go, where the next is, where the last was
        self._to_go = np.zeros(self.wall.shape)
        self._onward, self._back = np.zeros((2, *self.wall.shape, 2))
        self._to_go[at] = np.arange(len(way))
        self._onward[at], self._back[at] = -steps[:-1], steps[1:]

    def begin(self, rows: Rows) -> None:
        """Anywhere in the cell at the upper left."""
        draws = [self.generators[row].uniform(1.2, 1.8, 2) for row in rows]
        self.arrays["place"][rows] = draws

    def play(self, actions: Array) -> tuple[Array, Array]:
        """Moves along the one coordinate, then along the other."""
        place, before = self.arrays["place"], self._way_left() if self.dense else 0.0
        for axis in range(2):
            moved = place.copy()
            moved[:, axis] += self.speed * actions[:, axis]
            row, column = np.floor(moved).astype(np.intp).T
            place = np.where(self.wall[row, column][:, None], place, moved)
        self.arrays["place"] = place
        found = (np.floor(place) == self.goal).all(axis=1)
        rewards = found.astype(np.float64)
        if self.dense:
            rewards += before - self._way_left()
        return rewards, found

    def _way_left(self) -> Array:
        """Share of the way, from middle to middle of its cells, that is still to go, (N,)."""
        cell = np.floor(self.arrays["place"]).astype(np.intp)
        aside, at = self.arrays["place"] - cell - 0.5, tuple(cell.T)
        ahead, behind = (
            np.maximum((aside * beside[at]).sum(axis=1), 0) for beside in (self._onward, self._back)
        )
        left: Array = (self._to_go[at] - ahead + behind) / self._to_go.max()
        return left

    def observe(self) -> NDArray[np.float32]:
        """Return the place, seen from the middle."""
        half = np.array(self.wall.shape) / 2
        return ((self.arrays["place"] - half) / (half - 1)).astype(np.float32)

    def positions(self) -> Array:
        """Return the cell, four to each of the maze's."""
        cells: Array = np.floor(2 * self.arrays["place"]).astype(np.int64)
        return cells


class FlagCar(SmallGame):
    """Gymnasium's MountainCar that pays 1 at the flag, and nothing before.

    Its engine is too weak for the slope: it has to swing. Published rewards (-1 a step) make a
    random agent hurry; here nothing tells it anything until it has found the flag.

    Args:
        num_envs: How many copies.
        episode_steps: Steps of an episode, Gymnasium's by default.
    """

    ends_when_solved = True
    LEAST, MOST, FASTEST, FLAG = -1.2, 0.6, 0.07, 0.5

    def __init__(self, num_envs: int = 1, episode_steps: int = 200) -> None:
        low, high = np.array([[self.LEAST, -self.FASTEST], [self.MOST, self.FASTEST]], np.float32)
        state: dict[str, Any] = {"position": 0.0, "velocity": 0.0}
        super().__init__(num_envs, spaces.Box(low, high), spaces.Discrete(3), episode_steps, state)

    def begin(self, rows: Rows) -> None:
        """At rest near the bottom of the valley."""
        draws = [self.generators[row].uniform(-0.6, -0.4) for row in rows]
        self.arrays["position"][rows], self.arrays["velocity"][rows] = draws, 0.0

    def play(self, actions: Array) -> tuple[Array, Array]:
        """Pushes left, not at all, or right."""
        position, velocity = self.arrays["position"], self.arrays["velocity"]
        velocity = velocity + (actions - 1) * 0.001 - 0.0025 * np.cos(3 * position)
        velocity = np.clip(velocity, -self.FASTEST, self.FASTEST)
        position = np.clip(position + velocity, self.LEAST, self.MOST)
        velocity = np.where((position == self.LEAST) & (velocity < 0), 0.0, velocity)
        self.arrays["position"], self.arrays["velocity"] = position, velocity
        found = position >= self.FLAG
        return found.astype(np.float64), found

    def observe(self) -> NDArray[np.float32]:
        """Return position and velocity."""
        return self.positions().astype(np.float32)

    def positions(self) -> Array:
        """Return position and velocity."""
        return np.stack([self.arrays["position"], self.arrays["velocity"]], axis=1)
