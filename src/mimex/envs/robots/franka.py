"""The Franka Emika Panda with its parallel gripper."""

from __future__ import annotations

import math

from mimex.envs.robots.base import Robot

_KP, _KV = 400.0, 80.0  # of the arm's position servos, as in the file
_MAX_SPEEDS = (2.175,) * 4 + (2.61,) * 3  # rad/s, published
# A servo moves its joint at kp / kv times the distance to the target per second. The fingers have
# no such limit: it would weaken their grasp.
_LEADS = tuple(speed * _KV / _KP for speed in _MAX_SPEEDS) + (math.inf,) * 2  # rad, m

FRANKA = Robot(
    name="Franka",
    end_effector="gripper",
    file="franka.xml",
    joints=(
        *(f"panda_joint{i}" for i in range(1, 8)),
        "panda_finger_joint1",
        "panda_finger_joint2",
    ),
    home=(1.157, -1.066, -0.155, -2.239, -1.841, 1.003, 0.469, 0.035, 0.035),
    speeds=(1.0,) * 7 + (0.1,) * 2,
    arm_bodies=tuple(f"panda_link{i}" for i in range(1, 8)),
    fingers=("panda_leftfinger", "panda_rightfinger"),
    palm=None,
    wrist_camera="wrist",
    leads=_LEADS,
)
