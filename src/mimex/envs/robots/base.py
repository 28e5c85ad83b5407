"""Description of a robot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import mujoco

EndEffector = Literal["gripper", "hand"]


@dataclass(frozen=True)
class Robot:
    """A robot: its MJCF file, and the names in it that tasks use.

    Attributes:
        name: Prefix of the task ids, for example "Franka".
        end_effector: "gripper" (two fingers) or "hand" (three fingers, then the thumb); the
            tasks' published constants depend on it.
        file: MJCF file in this folder with bodies, geoms, sites, the wrist camera and position
            actuators. Its base stands at x = 1 m and faces -x.
        joints: Actuated joints in the order of the action; actuators have the same names.
        home: Home position of each joint (rad, m), before noise.
        speeds: Factor on the action of each joint (dimensionless; fingers of the Franka 0.1).
        arm_bodies: Bodies that must not be touched: contact of more than 1 N ends the episode.
        fingers: Sites at the grasp points, in the order of the published observation.
        palm: Site at the center of the palm, where the published observation has one.
        wrist_camera: Name of the egocentric camera.
        leads: How far the target of a position servo may be ahead of each joint (rad, m), which
            limits the joint's speed to kp / kv times as much; None where no limit is published.
    """

    name: str
    end_effector: EndEffector
    file: str
    joints: tuple[str, ...]
    home: tuple[float, ...]
    speeds: tuple[float, ...]
    arm_bodies: tuple[str, ...]
    fingers: tuple[str, ...]
    palm: str | None
    wrist_camera: str
    leads: tuple[float, ...] | None = None

    def load(self) -> mujoco.MjSpec:
        """Return a spec with the robot only, to which a scene is added."""
        return mujoco.MjSpec.from_file(str(Path(__file__).with_name(self.file)))
