"""Move: carry a cube to a goal in the air."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from mimex.envs.engine import Array, Engine, Rows
from mimex.envs.robots.base import Robot
from mimex.envs.scene import add_goal
from mimex.envs.settings import Settings
from mimex.envs.tasks.base import Mask, distances
from mimex.envs.tasks.pick import CUBE, Pick

GOAL_CENTER = (0.5, 0.0, 0.7)  # m, published
GOAL_RANGE = (0.1, 0.2, 0.1)  # m, published


class Move(Pick):
    """Bring the center of the cube to a goal; everything else is as in Pick."""

    draws = 5
    own_settings = (*Pick.own_settings, "goal_spread", "goal_offset")

    @staticmethod
    def furnish(spec: mujoco.MjSpec, robot: Robot) -> None:
        """Add a table, the cube and the goal."""
        Pick.furnish(spec, robot)
        add_goal(spec)

    @staticmethod
    def success_condition(robot: Robot) -> str:
        """Return a short description of the success condition."""
        return f"cube within {100 * CUBE[robot.end_effector].move_radius:g} cm of the goal"

    def __init__(self, robot: Robot, engine: Engine, settings: Settings) -> None:
        super().__init__(robot, engine, settings)
        self._goal = engine.mocap("goal")

    def place(self, rows: NDArray[np.int32], unit: Array) -> None:
        """Draw the positions of cube and goal."""
        super().place(rows, unit)
        center = np.add(GOAL_CENTER, self.settings.goal_offset)
        reach = self.settings.goal_spread * np.array(GOAL_RANGE)
        self._goal[rows] = self.engine.array(center + reach * unit[:, 2:])

    def goal_distance(self) -> Array:
        """Return the distance from the cube's center to the goal (m), (N,)."""
        return distances(self.cube(), self._goal)

    def success(self, goal_distance: Array) -> Mask:
        """Return whether the cube is at the goal, (N,)."""
        return goal_distance <= self.constants.move_radius

    def oracle(self, rows: Rows) -> dict[str, Array]:
        """Return hand and cube, the goal, and the vector from the cube to the goal."""
        cube, goal = self.cube(rows), self._goal[rows]
        return self.grasp_groups(rows, cube) | {"goal": goal, "object_to_goal": goal - cube}
