"""The KUKA iiwa7 arm with an Allegro hand."""

from __future__ import annotations

from mimex.envs.robots.base import Robot

_FINGERS = ("index", "middle", "ring", "thumb")
_THUMB_LOWER_LIMIT = 0.279244444444  # rad, of its first joint, where it rests in the home pose

KUKA = Robot(
    name="Kuka",
    end_effector="hand",
    file="kuka_allegro.xml",
    joints=(
        *(f"iiwa7_joint_{i}" for i in range(1, 8)),
        *(f"{finger}_joint_{i}" for finger in _FINGERS for i in range(4)),
    ),
    home=(
        *(0.0, -0.4, 0.0, -1.0, 0.0, 1.0, 0.0),
        *(0.0,) * 12,
        *(_THUMB_LOWER_LIMIT, 0.0, 0.0, 0.0),
    ),
    speeds=(1.0,) * 23,
    arm_bodies=tuple(f"iiwa7_link_{i}" for i in range(8)),
    fingers=tuple(f"{finger}_grasp" for finger in _FINGERS),
    palm="palm",
    wrist_camera="wrist",
)
