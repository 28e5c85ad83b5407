"""Cabinet: open a drawer by its handle."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from mimex.envs.arrays import copied, namespace
from mimex.envs.cabinet import BOX_OFFSETS, CABINET_CENTER, DRAWER_IN_CABINET, add_cabinet
from mimex.envs.engine import Array, Engine, Rows
from mimex.envs.reward import bonus, near
from mimex.envs.robots.base import Robot
from mimex.envs.settings import Settings
from mimex.envs.tasks.base import Outcome, Task, approach_terms, distances

CABINET_RANGE = (0.075, 0.075, 0.05)  # m, published
FLOOR = 0.008  # m: nearness to the handle is constant below this distance (published)
HOLDING_RADIUS = 0.04  # m: the handle is held if both fingers are this close (published)
OPEN = 0.01  # m: the drawer counts as open beyond this (published)
HANDLE_OFFSET = {"gripper": 0.016, "hand": 0.04}  # m, in the nearness to the handle (published)
GOAL_MARGIN = 0.02  # m: the goal bonus starts this far before success (published: at 30 of 32 cm)


class Cabinet(Task):
    """Open the drawer by 32 cm; a gripper must still hold the handle.

    Both are the published defaults of the settings `opening` (m) and `hold`.
    """

    draws = 3
    weights = {  # noqa: RUF012 (declared by Task)
        "gripper": {
            "handle_distance": (0.06, 0.0, 0.0),
            "handle_bonus": (1.0, 3.0, 3.0),
            "open_bonus": (2.0, 2.0, 2.0),
            "goal_distance": (6.0, 6.0, 0.0),
            "open_pose_bonus": (3.0, 3.0, 3.0),
            "goal_bonus": (2.0, 2.0, 2.0),
        },
        "hand": {
            "finger_distance": (0.04, 0.0, 0.0),
            "thumb_distance": (0.08, 0.0, 0.0),
            "handle_bonus": (0.0, 0.0, 0.0),
            "open_bonus": (2.0, 2.0, 2.0),
            "goal_distance": (6.0, 6.0, 0.0),
            "open_pose_bonus": (0.0, 0.0, 0.0),
            "goal_bonus": (2.0, 2.0, 2.0),
        },
    }
    sparse_steps = {"gripper": 1000}  # noqa: RUF012 (declared by Task)
    own_settings = ("opening", "hold", "object_spread")
    view = ((1.9, -1.5, 1.6), (0.44, 0.0, 0.5))  # behind the robot, with the drawer in view

    @staticmethod
    def furnish(spec: mujoco.MjSpec, robot: Robot) -> None:
        """Add the cabinet."""
        add_cabinet(spec)
        if robot.end_effector == "hand":
            # The same forces up to rounding, in 12 to 36 % less time for the solver. MuJoCo chooses
            # sparse Jacobians by itself only from 60 degrees of freedom; this scene has 48.
            spec.option.jacobian = mujoco.mjtJacobian.mjJAC_SPARSE

    @staticmethod
    def success_condition(robot: Robot) -> str:
        """Return a short description of the success condition."""
        opened = f"drawer open by {100 * Settings.opening:g} cm"
        if robot.end_effector == "hand":
            return opened
        return f"{opened}, both fingers within {100 * HOLDING_RADIUS:g} cm of the handle"

    def __init__(self, robot: Robot, engine: Engine, settings: Settings) -> None:
        super().__init__(robot, engine, settings)
        self._cabinet = engine.mocap("cabinet")
        self._handle = engine.site("handle")
        drawer, _ = engine.joint_columns(["drawer"])
        self._opening = engine.qpos[:, drawer]  # (N, 1), live
        boxes = [engine.joint_columns([f"box{i}"])[0] for i in range(len(BOX_OFFSETS))]
        self._boxes = [engine.qpos[:, columns] for columns in boxes]  # (N, 7) each, live

    def place(self, rows: NDArray[np.int32], unit: Array) -> None:
        """Draw the cabinet's position, with the drawer closed and the boxes at rest in it."""
        reach = self.settings.object_spread * np.array(CABINET_RANGE)
        cabinet = CABINET_CENTER + reach * unit
        self._cabinet[rows] = self.engine.array(cabinet)
        for pose, offset in zip(self._boxes, BOX_OFFSETS, strict=True):
            pose[rows, :3] = self.engine.array(cabinet + DRAWER_IN_CABINET + offset)

    def evaluate(self) -> Outcome:
        """Return the terms of Cabinet: fingers to handle, grasp, and drawer opening."""
        fingers = self.fingers()  # (N, fingers, 3)
        distance = distances(fingers, self._handle[:, None])  # (N, fingers)
        # First and last finger: the two of a gripper, or index finger and thumb of a hand.
        above = fingers[..., 2] > self._handle[:, 2:]  # (N, fingers)
        around = bonus(above[:, 0] != above[:, -1])
        holding = (distance[:, 0] <= HOLDING_RADIUS) & (distance[:, -1] <= HOLDING_RADIUS)
        opening = copied(self._opening[:, 0])
        nearness = near(distance, FLOOR, HANDLE_OFFSET[self.robot.end_effector])
        terms = approach_terms(nearness, "handle_distance") | {
            "handle_bonus": around,
            "open_bonus": bonus(opening > OPEN),
            "goal_distance": opening,
            "open_pose_bonus": 2.0 * around * holding * opening,
            "goal_bonus": bonus(opening >= self.settings.opening - GOAL_MARGIN),
        }
        met = opening >= self.settings.opening
        if self.robot.end_effector == "gripper" and self.settings.hold:
            met &= holding
        return Outcome(terms, met=met, fallen=namespace(met).zeros_like(met))

    def oracle(self, rows: Rows) -> dict[str, Array]:
        """Return hand, handle, and the opening that is still missing for success (m)."""
        left = self.settings.opening - self._opening[rows]
        return self.grasp_groups(rows, self._handle[rows]) | {"object_to_goal": left}
