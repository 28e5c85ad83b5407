"""Scripted experts of the four tasks with the Franka Panda."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.transform import Rotation

from mimex.envs.arrays import to_numpy
from mimex.envs.experts.base import Aim, Expert, Leg, site, towards
from mimex.envs.robots.franka import FRANKA

OPEN, CLOSED = (0.04, 0.04), (0.0, 0.0)  # finger targets, m
# Elbow above the shoulder and forearm over the table, clear of its edge (rad).
ELBOW_UP = (0.0, -0.4, 0.0, -2.3, 0.0, 2.0, 0.785)
_DRAWER_OPEN = 0.37  # m, between the required 0.32 and the end at 0.4
_PICK_HEIGHT = 0.78  # m, well inside the goal range of 0.7 to 0.9


def pitched(angle: float) -> Rotation:
    """Return the hand pitched forward: 0 points down, pi/2 along -x; fingers open along y."""
    down = Rotation.from_matrix([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]])
    return Rotation.from_rotvec([0.0, angle, 0.0]) * down


# Points along -x with the left finger above the right one, to grasp the horizontal handle.
LEVEL = Rotation.from_matrix([[0.0, 0.0, -1.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


_at_goal = towards("goal", LEVEL, turn_weight=0.0)
_above_cube = towards("cube", pitched(0.0), (0.0, 0.0, 0.1))
_at_cube = towards("cube", pitched(0.0))
_moved = towards("goal", pitched(0.6), turn_weight=0.1)
_at_handle = towards("handle", LEVEL)
_before_handle = towards("handle", LEVEL, (0.1, 0.0, 0.0))


def _lifted(env: Any) -> Aim:
    point = site(env, "cube")
    point[:, 2] = _PICK_HEIGHT
    return Aim(point, pitched(math.pi / 3), turn_weight=0.2)


def _pulled(env: Any) -> Aim:
    """Pull the handle, and stop before the drawer's end stop, where the fingers would slip off."""
    column, _ = env.engine.joint_columns(["drawer"])
    rest = np.clip(_DRAWER_OPEN - to_numpy(env.engine.qpos[:, column]), 0.0, 0.1)  # (N, 1)
    return Aim(site(env, "handle") + rest * np.array([1.0, 0.0, 0.0]), LEVEL)


# Ends with the cube between the closed fingers.
_GRASP = (
    Leg(_above_cube, OPEN, near=0.015, turned=0.1),
    Leg(_at_cube, OPEN, near=0.006, speed=0.3),
    Leg(_at_cube, CLOSED, at_least=30, at_most=30),
)


class FrankaExpert(Expert):
    """An expert that aims the point between the two grasp points."""

    body = "panda_hand"
    offset = (0.0, 0.0, 0.1034)  # m: finger frames at 0.0584, grasp points 0.045 further
    posture: ClassVar[tuple[float, ...]] = ELBOW_UP


class Reach(FrankaExpert):
    """Move to the goal with any orientation of the hand."""

    plan = (Leg(_at_goal, OPEN),)


class Pick(FrankaExpert):
    """Grasp the cube from above, then lift it while the hand pitches forward."""

    plan = (*_GRASP, Leg(_lifted, CLOSED, speed=0.4))


class Move(FrankaExpert):
    """Grasp the cube as in Pick, then move it to the goal."""

    plan = (*_GRASP, Leg(_moved, CLOSED))


class Cabinet(FrankaExpert):
    """Grasp the handle and pull."""

    posture = FRANKA.home[:7]  # in which one finger is above the other
    plan = (
        Leg(_before_handle, OPEN, near=0.02),
        Leg(_at_handle, OPEN, speed=0.3),
        Leg(_at_handle, CLOSED, at_least=30, at_most=30),
        Leg(_pulled, CLOSED, speed=0.3),
    )


EXPERTS: dict[str, type[Expert]] = {
    "FrankaReach": Reach,
    "FrankaCabinet": Cabinet,
    "FrankaPick": Pick,
    "FrankaMove": Move,
}
