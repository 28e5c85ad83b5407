"""What a task needs to know about a robot, whatever the robot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import mujoco

EndEffector = Literal["gripper", "hand"]

# The published wrist image is 298 x 224 with a horizontal field of view of 120 degrees; this is
# its vertical field of view, and that of the central square too: 2 atan(tan(60) 224 / 298).
WRIST_FOVY = 104.95  # degrees


@dataclass(frozen=True)
class Robot:
    """A robot as data: how to add it to a scene, and the names a task asks for.

    Attributes:
        name: Prefix of the task ids, for example "Franka".
        end_effector: "gripper" (two fingers) or "hand" (three fingers, then the thumb); the
            tasks' published figures depend on it.
        add_to: Adds bodies, joints, geoms, sites, the wrist camera and position actuators to a
            spec, on a base frame that the function places itself (x = 1, turned to look along -x).
        joints: Actuated joints in the order of the action; actuators bear the same names.
        home: Home position of each joint (rad, m), before noise.
        speeds: Factor on the action of each joint (dimensionless; fingers of the Franka 0.1).
        arm_bodies: Bodies that must not be touched: contact of more than 1 N ends the episode.
        fingers: Sites at the grasp points, in the order of the published observation.
        palm: Site at the palm's center, where the published observation has one.
        wrist_camera: Name of the egocentric camera.
        leads: How far the drive's target may be ahead of each joint (rad, m), which limits its
            speed to stiffness / damping times as much; None where no limit is published.
    """

    name: str
    end_effector: EndEffector
    add_to: Callable[[mujoco.MjSpec], None]
    joints: tuple[str, ...]
    home: tuple[float, ...]
    speeds: tuple[float, ...]
    arm_bodies: tuple[str, ...]
    fingers: tuple[str, ...]
    palm: str | None
    wrist_camera: str
    leads: tuple[float, ...] | None = None
