"""Scripted experts of the four tasks with the KUKA iiwa7 and the Allegro hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from mimex.envs.experts.base import Aim, Expert, Leg, site, towards
from mimex.envs.robots.kuka_allegro import KUKA

_HAND_HOME = KUKA.home[7:]

# Finger targets (rad): index, middle, ring, thumb, from the palm outwards. Open, the fingers
# are over the far side of the cube and the thumb is at its near side. Closed, the targets are
# about 2 cm inside the cube, so that the servos push with their full torque. Found by random search
# over fingertip positions around the cube, scored by lifting it in simulation.
_OPEN = (
    *(0.14, -0.06, 0.68, 1.13),
    *(0.33, -0.02, 0.70, 1.13),
    *(0.56, 0.14, 0.65, 0.98),
    *(0.38, 1.15, 0.33, 1.76),
)
_CLOSED = (
    *(0.21, 0.21, 1.07, 1.38),
    *(0.34, 0.27, 1.08, 1.34),
    *(0.56, 0.38, 1.00, 1.21),
    *(0.47, 0.70, 0.44, 1.67),
)
# With a level hand, the last links point down and 8 degrees back, so that the hook holds a pull.
_HOOK = (*(0.0, 0.25, 0.35, 0.9) * 3, *KUKA.home[19:])

_GRASP_PITCH = -0.5  # rad: steep enough for the elbow to fold over a near cube
_HOOK_PITCH = 0.0  # rad: with a lower pitch the wrist would have to be above the arm's reach
_PICK_HEIGHT = 0.78  # m, well inside the goal range of 0.7 to 0.9
_FARTHEST_LIFT = 0.45  # m, x: further away, lifting would stretch the arm straight


def pitched(angle: float) -> Rotation:
    """Return the hand pitched: at 0 the fingers point along -x and the palm down, < 0 lower."""
    level = Rotation.from_matrix([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]])
    return Rotation.from_rotvec([0.0, angle, 0.0]) * level


_GRASPING, _HOOKING = pitched(_GRASP_PITCH), pitched(_HOOK_PITCH)
_at_goal = towards("goal", _GRASPING, turn_weight=0.0)
_above_cube = towards("cube", _GRASPING, (0.0, 0.0, 0.12))
_at_cube = towards("cube", _GRASPING)
_moved = towards("goal", _GRASPING, turn_weight=0.2)
# The gap between handle and drawer is 31 mm wide, its middle 24.5 mm behind the handle.
_above_gap = towards("handle", _HOOKING, (-0.0245, 0.0, 0.055))
_in_gap = towards("handle", _HOOKING, (-0.0245, 0.0, 0.0))
_pulled = towards("handle", _HOOKING, (0.06, 0.0, 0.0), turn_weight=0.2)


def _lifted(env: Any) -> Aim:
    point = site(env, "cube")
    point[:, 0] = np.maximum(point[:, 0], _FARTHEST_LIFT)
    point[:, 2] = _PICK_HEIGHT
    return Aim(point, _GRASPING, turn_weight=0.2)


# Ends with the cube between fingers and thumb. The second leg stops short of its aim, where the
# fingertips rest on the table; as they close, they leave it and the hand sinks the rest.
_GRASP = (
    Leg(_above_cube, _OPEN, near=0.02, turned=0.2),
    Leg(_at_cube, _OPEN, near=0.018, speed=0.3),
    Leg(_at_cube, _CLOSED, at_least=40, at_most=40),
)


class KukaExpert(Expert):
    """An expert that aims a point in front of the palm."""

    body = "palm_link"
    posture = (0.0, -0.4, 0.0, -1.6, 0.0, 1.0, 0.0)  # rad: elbow up and behind the wrist


class Reach(KukaExpert):
    """Move the tip of the straight index finger to the goal, with any orientation of the hand."""

    body = "index_link_3"
    offset = (0.0405, 0.009, 0.0)  # m: the index finger's grasp point
    plan = (Leg(_at_goal, _HAND_HOME),)


class _Grasp(KukaExpert):
    """An expert that holds a cube between fingers and thumb."""

    offset = (0.044, -0.028, 0.04)  # m: center of a held cube in the palm's frame


class Pick(_Grasp):
    """Grasp the cube with the hand pitched forward, and lift it."""

    plan = (*_GRASP, Leg(_lifted, _CLOSED, speed=0.3))


class Move(_Grasp):
    """Grasp the cube as in Pick, then move it to the goal."""

    plan = (*_GRASP, Leg(_moved, _CLOSED, speed=0.3))


class Cabinet(KukaExpert):
    """Lower the hooked fingers behind the handle, and pull."""

    offset = (0.1204, 0.0079, 0.0451)  # m: on the axis of the middle finger's last link
    plan = (
        Leg(_above_gap, _HOOK, near=0.01, turned=0.05),
        Leg(_in_gap, _HOOK, near=0.01, speed=0.2),
        Leg(_pulled, _HOOK, speed=0.3),
    )


EXPERTS: dict[str, type[Expert]] = {
    "KukaReach": Reach,
    "KukaCabinet": Cabinet,
    "KukaPick": Pick,
    "KukaMove": Move,
}
