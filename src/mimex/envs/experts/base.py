"""Base class of the scripted experts.

An expert reads the state (sites, joints) and returns actions like any policy; it never writes the
state. A plan is a tuple of legs; a leg has an aim for the hand and a condition for the next leg.
Every environment follows the plan at its own pace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from mimex.envs.arrays import to_numpy
from mimex.envs.experts.kinematics import Floats, Kinematics
from mimex.envs.manipulation import ACTION_GAIN

PLAN_HZ = 60.0  # control rate of the step counts of a leg


@dataclass(frozen=True)
class Aim:
    """Target pose of the hand, for N environments.

    Attributes:
        point: Target of the tool point (N, 3), m.
        rotation: Target orientation of the hand; one for all environments or N.
        turn_weight: Weight of the orientation error relative to the position error (m/rad).
    """

    point: Floats
    rotation: Rotation
    turn_weight: float = 0.5


@dataclass(frozen=True)
class Leg:
    """One leg of a plan.

    Attributes:
        aim: Returns the target pose for an environment; called at every step, so it may follow a
            moving object.
        fingers: Targets of the joints after the arm's (rad or m).
        near: Distance of the tool point to the aim below which the leg ends (m).
        turned: Orientation error of the hand below which the leg ends (rad).
        at_least: Minimum duration in steps of 1/60 s, at any control rate.
        at_most: Maximum duration in steps of 1/60 s.
        speed: Maximum speed of the tool point (m/s).
    """

    aim: Callable[[Any], Aim]
    fingers: tuple[float, ...]
    near: float = 0.01
    turned: float = 0.15
    at_least: int = 0
    at_most: int = 150
    speed: float = 0.6


class Expert:
    """Follows a plan in each of N environments; subclasses define the plan and the tool point.

    Attributes:
        plan: The legs in order; the last one lasts until the episode ends.
        body: The body that carries the tool point.
        offset: The tool point in the body's frame (m).
        arm: Number of arm joints, the first joints of the robot.
        posture: Preferred arm joint positions in the null space of the aim (rad).
        turn_speed: Maximum rotation speed of the hand (rad/s).
        finger_speed: Maximum action of the joints after the arm's.

    Args:
        env: The vector environment; `env.unwrapped` has `engine`, `targets`, `robot`,
            `settings` and `num_envs`.
    """

    plan: ClassVar[tuple[Leg, ...]]
    body: ClassVar[str]
    offset: ClassVar[tuple[float, float, float]]
    arm: ClassVar[int] = 7
    posture: ClassVar[tuple[float, ...]]
    turn_speed: ClassVar[float] = 2.0
    finger_speed: ClassVar[float] = 0.5

    def __init__(self, env: Any) -> None:
        env = env.unwrapped
        self.robot = env.robot
        self.num_envs = int(env.num_envs)
        self.leg = np.zeros(self.num_envs, np.int64)
        self.steps_in_leg = np.zeros(self.num_envs, np.int64)
        self._kinematics = Kinematics(env.robot, self.num_envs, self.body, self.offset, self.arm)
        self._posture = np.array(self.posture)

    def reset(self, which: NDArray[np.bool_]) -> None:
        """Restart the plan where an episode has ended, (N,)."""
        self.leg[which] = 0
        self.steps_in_leg[which] = 0

    def act(self, env: Any) -> Floats:
        """Return the next actions (N, joints)."""
        env = env.unwrapped
        targets = to_numpy(env.targets).astype(float)  # (N, joints)
        arm = targets[:, : self.arm]
        point, rotation = self._kinematics.pose(arm)
        columns, _ = env.engine.joint_columns(self.robot.joints[: self.arm])
        hand = self._kinematics.pose(to_numpy(env.engine.qpos[:, columns]))
        wanted = targets.copy()
        legs = self.leg.copy()  # a change of leg takes effect from the next step
        for index in np.unique(legs):
            leg = self.plan[index]
            aim = leg.aim(env)
            turn = (aim.rotation * rotation.inv()).as_rotvec()
            joints = self._kinematics.step(
                arm,
                _shorten(aim.point - point, leg.speed / env.settings.control_hz),
                _shorten(turn, self.turn_speed / env.settings.control_hz),
                aim.turn_weight,
                self._posture,
            )
            rows = legs == index
            wanted[rows, : self.arm] = joints[rows]
            wanted[rows, self.arm :] = leg.fingers
            arrived = _arrived(leg, aim, *hand)
            self._advance(rows, leg, arrived, env.settings.control_hz)
        limit = np.ones(targets.shape[1])
        limit[self.arm :] = self.finger_speed
        reach = np.array(self.robot.speeds) * ACTION_GAIN / env.settings.control_hz
        action: Floats = np.clip((wanted - targets) / reach, -limit, limit)
        return action

    def _advance(
        self, rows: NDArray[np.bool_], leg: Leg, arrived: NDArray[np.bool_], control_hz: float
    ) -> None:
        """Count a step of a leg, and advance to the next where it has ended."""
        self.steps_in_leg[rows] += 1
        passed = self.steps_in_leg * (PLAN_HZ / control_hz)
        over = rows & (arrived | (passed >= leg.at_most)) & (passed >= leg.at_least)
        over &= self.leg < len(self.plan) - 1
        self.leg[over] += 1
        self.steps_in_leg[over] = 0


def _arrived(leg: Leg, aim: Aim, point: Floats, rotation: Rotation) -> NDArray[np.bool_]:
    """Return where the hand itself, not only its target, has reached the aim, (N,)."""
    near: NDArray[np.bool_] = np.linalg.norm(aim.point - point, axis=1) <= leg.near
    if aim.turn_weight > 0:
        near &= (aim.rotation * rotation.inv()).magnitude() <= leg.turned
    return near


def site(env: Any, name: str, shift: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Floats:
    """Return the position of a site plus an offset (m), (N, 3)."""
    position: Floats = to_numpy(env.engine.site(name)) + np.array(shift)
    return position


def towards(
    name: str,
    rotation: Rotation,
    shift: tuple[float, float, float] = (0.0, 0.0, 0.0),
    turn_weight: float = 0.5,
) -> Callable[[Any], Aim]:
    """Return an aim at a site plus an offset (m), for a leg."""
    return lambda env: Aim(site(env, name, shift), rotation, turn_weight)


def _shorten(vectors: Floats, longest: float) -> Floats:
    """Return vectors (N, 3) with their norm clipped."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    short: Floats = vectors * np.minimum(1.0, longest / np.maximum(length, 1e-12))
    return short
