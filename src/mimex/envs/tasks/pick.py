"""Pick: lift a cube off the table, to a height of 0.8 m."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from mimex.envs.engine import ALL, Array, Engine, Rows
from mimex.envs.reward import bonus, near
from mimex.envs.robots.base import Robot
from mimex.envs.scene import TABLE_HEIGHT, add_cube, add_table
from mimex.envs.settings import Settings
from mimex.envs.tasks.base import Mask, Outcome, Task, approach_terms, distances

CUBE_CENTER = (0.5, 0.0)  # m, published
CUBE_RANGE = (0.1, 0.2)  # m, published
GOAL_HEIGHT = 0.8  # m, of the cube's center (published)
SUCCESS_RADIUS = 0.1  # m, of Pick's goal height (published)
OFFSET = 0.04  # m, in all distance terms (published)
TOUCH_SPEED = 0.01  # m/s, of the cube along the table; it is at rest unless touched


@dataclass(frozen=True)
class Cube:
    """Constants of Pick and Move that depend on the end effector (m).

    Attributes:
        size: Edge of the cube.
        near: Distance of a finger to the cube below which nearness does not grow.
        lift: How far the cube must rise to count as lifted.
        goal_radius: Distance of the cube to its goal that earns the bonus.
        move_radius: Distance of the cube to its goal that counts as success in Move.
        drop: How far the cube may fall below its start before the episode ends.
    """

    size: float
    near: float
    lift: float
    goal_radius: float
    move_radius: float
    drop: float


CUBE = {  # published
    "gripper": Cube(0.045, near=0.02, lift=0.015, goal_radius=0.04, move_radius=0.04, drop=0.04),
    "hand": Cube(0.06, near=0.03, lift=0.02, goal_radius=0.06, move_radius=0.0675, drop=0.06),
}


class Pick(Task):
    """Lift the cube to within 10 cm of a height of 0.8 m.

    The setting `lift` defines when the cube counts as lifted:

    - "clear" (default): its lowest corner has risen by the threshold.
    - "center": its center has risen by it (published). A cube tipped onto an edge also satisfies
      this while it stands on the table: random actions satisfied "center" in twice as many episodes
      as "clear" (62 and 31 of 5,256).
    - "held": it is clear, and the first and the last finger are within one edge length of its
      center. The goal bonus and success then require this, too. Otherwise an agent that is rewarded
      only for lifts learns to toss the cube. A cube that is tossed to the goal height stays within
      10 cm of it for 17 steps, which is a success by the published rule.
    """

    draws = 2
    weights = {  # noqa: RUF012 (declared by Task)
        "gripper": {
            "object_distance": (0.08, 0.0, 0.0),
            "lift_bonus": (4.0, 12.0, 12.0),
            "goal_distance": (1.28, 1.28, 0.0),
            "goal_bonus": (4.0, 4.0, 4.0),
        },
        "hand": {
            "finger_distance": (0.04, 0.0, 0.0),
            "thumb_distance": (0.08, 0.0, 0.0),
            "lift_bonus": (4.0, 4.0, 4.0),
            "goal_distance": (1.28, 1.28, 0.0),
            "goal_bonus": (4.0, 4.0, 4.0),
        },
    }
    own_settings: ClassVar[tuple[str, ...]] = ("lift", "object_spread")

    @staticmethod
    def furnish(spec: mujoco.MjSpec, robot: Robot) -> None:
        """Add a table and the cube."""
        add_table(spec)
        add_cube(spec, CUBE[robot.end_effector].size)

    @staticmethod
    def success_condition(robot: Robot) -> str:
        """Return a short description of the success condition."""
        return f"cube within {100 * SUCCESS_RADIUS:g} cm of {100 * GOAL_HEIGHT:g} cm height"

    def __init__(self, robot: Robot, engine: Engine, settings: Settings) -> None:
        super().__init__(robot, engine, settings)
        self.constants = CUBE[robot.end_effector]
        self.half = self.constants.size / 2.0
        positions, velocities = engine.joint_columns(["cube"])
        self._pose = engine.qpos[:, positions]  # (N, 7) position and quaternion, live
        self._velocity = engine.qvel[:, velocities]  # (N, 6) linear (m/s) and angular, live
        self.memory["start_height"] = engine.array(np.zeros(engine.num_envs))

    def place(self, rows: NDArray[np.int32], unit: Array) -> None:
        """Draw the cube's position on the table."""
        pose = np.zeros((len(rows), 7))
        pose[:, :2] = CUBE_CENTER + self.settings.object_spread * np.array(CUBE_RANGE) * unit[:, :2]
        pose[:, 2] = TABLE_HEIGHT + self.half
        pose[:, 3] = 1.0
        self._pose[rows] = self.engine.array(pose)
        self.memory["start_height"][rows] = TABLE_HEIGHT + self.half

    def cube(self, rows: Rows = ALL) -> Array:
        """Return the center of the cube (m), (rows, 3)."""
        return self._pose[rows, :3]

    def lifted(self) -> Mask:
        """Return whether the cube is lifted, as defined by `settings.lift`, (N,)."""
        rise = self._pose[:, 2] - self.memory["start_height"]
        if self.settings.lift != "center":
            # The lowest corner is below the center by half the edge times the sum of the vertical
            # components of the cube's three axes, which is 1 for a cube that lies flat.
            rise = rise - self.half * (_vertical_extent(self._pose[:, 3:]) - 1.0)
        up: Mask = rise > self.constants.lift
        return up & self.between_fingers() if self.settings.lift == "held" else up

    def between_fingers(self) -> Mask:
        """Return whether first and last finger are within one edge length of the cube, (N,)."""
        distance = distances(self.fingers(), self.cube()[:, None])  # (N, fingers)
        near_both: Mask = (distance[:, 0] <= 2 * self.half) & (distance[:, -1] <= 2 * self.half)
        return near_both

    def touched(self) -> Mask:
        """Return whether the cube is moving along the table, (N,)."""
        across = self._velocity[:, :2]
        moves: Mask = (across * across).sum(1) > TOUCH_SPEED**2
        return moves

    def goal_distance(self) -> Array:
        """Return the distance of the cube to its goal height (m), (N,)."""
        return abs(GOAL_HEIGHT - self._pose[:, 2])

    def success(self, goal_distance: Array) -> Mask:
        """Return whether the distance to the goal counts as success, (N,)."""
        return goal_distance <= SUCCESS_RADIUS

    def evaluate(self) -> Outcome:
        """Return the terms of Pick and Move: fingers to cube, lift, cube to goal."""
        to_cube = distances(self.fingers(), self.cube()[:, None])  # (N, fingers)
        nearness = near(to_cube, self.constants.near, OFFSET)
        lifted, distance = self.lifted(), self.goal_distance()
        counts = lifted | (self.settings.lift != "held")  # a tossed cube may reach the goal, too
        terms = approach_terms(nearness, "object_distance") | {
            "lift_bonus": bonus(lifted),
            "goal_distance": lifted * near(distance, 0.0, OFFSET),
            "goal_bonus": bonus(counts & (distance <= self.constants.goal_radius)),
        }
        drop = self.memory["start_height"] - self._pose[:, 2]
        return Outcome(
            terms,
            met=counts & self.success(distance),
            fallen=drop > self.constants.drop,
            touched=self.touched(),
        )

    def oracle(self, rows: Rows) -> dict[str, Array]:
        """Return hand, cube, and the remaining height to the goal (m)."""
        cube = self.cube(rows)
        return self.grasp_groups(rows, cube) | {"object_to_goal": GOAL_HEIGHT - cube[:, 2:]}


def _vertical_extent(quaternion: Array) -> Array:
    """Return the sum of |z| over a rotated body's three unit axes, (N,) in [1, sqrt(3)]."""
    w, x, y, z = quaternion.T
    horizontal: Array = abs(x * z - w * y) + abs(y * z + w * x)
    upright: Array = abs(1.0 - 2.0 * (x * x + y * y))
    return 2.0 * horizontal + upright
