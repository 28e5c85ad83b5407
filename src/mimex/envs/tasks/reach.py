"""Reach: bring the hand to a goal in the air."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from mimex.envs.arrays import namespace
from mimex.envs.engine import ALL, Array, Engine, Rows
from mimex.envs.reward import Weights, bonus, near
from mimex.envs.robots.base import Robot
from mimex.envs.scene import GOAL_RADIUS, add_goal, add_table
from mimex.envs.settings import Settings
from mimex.envs.tasks.base import Outcome, Task, distances

GOAL_RANGE = (0.2, 0.3, 0.2)  # m, published
GOAL_CENTER = {"gripper": (0.55, 0.0, 0.7), "hand": (0.45, 0.0, 0.65)}  # m, published
OFFSET = 0.04  # m, published
_WEIGHTS: Weights = {"goal_distance": (0.08, 0.0, 0.0), "goal_bonus": (0.4, 0.4, 0.4)}


class Reach(Task):
    """Bring the hand within 4 cm of the goal.

    The hand is the point between a gripper's fingers, or the tip of a hand's index finger.
    """

    draws = 3
    steps = 200  # published
    explored = ("hand",)
    weights = {"gripper": _WEIGHTS, "hand": _WEIGHTS}  # noqa: RUF012 (declared by Task)
    own_settings = ("goal_spread", "goal_offset")

    @staticmethod
    def furnish(spec: mujoco.MjSpec, robot: Robot) -> None:
        """Add a table and the goal."""
        add_table(spec)
        add_goal(spec)

    @staticmethod
    def success_condition(robot: Robot) -> str:
        """Return a short description of the success condition."""
        point = "hand" if robot.end_effector == "gripper" else "index finger"
        return f"{point} within {100 * GOAL_RADIUS:g} cm of the goal"

    def __init__(self, robot: Robot, engine: Engine, settings: Settings) -> None:
        super().__init__(robot, engine, settings)
        index_finger = robot.fingers[:1]
        self._hand_ids = engine.site_ids(
            robot.fingers if robot.end_effector == "gripper" else index_finger
        )
        self._goal = engine.mocap("goal")

    def place(self, rows: NDArray[np.int32], unit: Array) -> None:
        """Draw the goal around the center of the robot's workspace."""
        center = np.add(GOAL_CENTER[self.robot.end_effector], self.settings.goal_offset)
        reach = self.settings.goal_spread * np.array(GOAL_RANGE)
        self._goal[rows] = self.engine.array(center + reach * unit)

    def hand(self, rows: Rows = ALL) -> Array:
        """Return the position of the hand (m), (rows, 3)."""
        middle: Array = self.engine.sites(self._hand_ids, rows).mean(axis=1)
        return middle

    def evaluate(self) -> Outcome:
        """Return the terms of Reach: nearness to the goal, and the goal bonus."""
        distance = distances(self.hand(), self._goal)
        at_goal = distance <= GOAL_RADIUS
        terms = {"goal_distance": near(distance, 0.0, OFFSET), "goal_bonus": bonus(at_goal)}
        return Outcome(terms, met=at_goal, fallen=namespace(at_goal).zeros_like(at_goal))

    def oracle(self, rows: Rows) -> dict[str, Array]:
        """Return the hand, the goal, and goal minus hand."""
        hand, goal = self.hand(rows), self._goal[rows]
        return {"hand": hand, "goal": goal, "hand_to_goal": goal - hand}
