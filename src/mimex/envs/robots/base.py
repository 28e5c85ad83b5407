"""What a task needs to know about a robot, whatever the robot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import mujoco

from mimex.envs.reward import Weights

# The published wrist image is 298 x 224 with a horizontal field of view of 120 degrees; this is
# its vertical field of view, and that of the central square too: 2 atan(tan(60) 224 / 298).
WRIST_FOVY = 104.95  # degrees


@dataclass(frozen=True)
class Robot:
    """A robot as data: how to add it to a scene, and the names a task asks for.

    Attributes:
        name: Prefix of the task ids, for example "Franka".
        add_to: Adds bodies, joints, geoms, sites, the wrist camera and position actuators to a
            spec, on a base frame that the function places itself (x = 1, turned to look along -x).
        joints: Actuated joints in the order of the action; actuators bear the same names.
        home: Home position of each joint (rad, m), before noise.
        speeds: Factor on the action of each joint (dimensionless; fingers of the Franka 0.1).
        arm_bodies: Bodies that must not be touched: contact of more than 1 N ends the episode.
        fingers: Sites at the grasp points, in the order of the published observation.
        palm: Site at the palm's centre, where the published observation has one.
        reach_sites: Sites whose mean is the point that Reach brings to the goal.
        wrist_camera: Name of the egocentric camera.
        drop_limit: How far an object may fall below its start before the episode ends (m).
        cube_size: Edge of the cube that the robot picks and moves (m).
        reach_centre: Middle of the goals of Reach (m).
        handle_offset: In Cabinet's nearness to the handle (m).
        holds_handle: Whether Cabinet's success asks that the handle is still held.
        cube_floor: Distance to the cube below which nearness does not grow (m).
        cube_lift: How far the cube must rise to count as lifted (m).
        cube_goal: Distance of the cube to its goal that earns the bonus (m).
        cube_radius: Distance of the cube to its goal that is Move's success (m).
        weights: Of the terms of tasks where they are not those of a gripper with two fingers, by
            task.
        sparse_steps: Steps of an episode of tasks that are longer without the dense reward.
        leads: How far the drive's target may be ahead of each joint (rad, m), which limits its
            speed to stiffness / damping times as much; None where no limit is published.
    """

    name: str
    add_to: Callable[[mujoco.MjSpec], None]
    joints: tuple[str, ...]
    home: tuple[float, ...]
    speeds: tuple[float, ...]
    arm_bodies: tuple[str, ...]
    fingers: tuple[str, ...]
    palm: str | None
    reach_sites: tuple[str, ...]
    wrist_camera: str
    drop_limit: float
    cube_size: float = 0.045
    reach_centre: tuple[float, float, float] = (0.55, 0.0, 0.7)
    handle_offset: float = 0.016
    holds_handle: bool = True
    cube_floor: float = 0.02
    cube_lift: float = 0.015
    cube_goal: float = 0.04
    cube_radius: float = 0.04
    weights: Mapping[str, Weights] = field(default_factory=dict)
    sparse_steps: Mapping[str, int] = field(default_factory=dict)
    leads: tuple[float, ...] | None = None
