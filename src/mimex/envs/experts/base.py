"""What all scripted solutions share: legs of a plan, followed by each environment at its own pace.

An expert looks at the state (sites, joints) and answers with actions like any policy; it never
writes the state. A plan is a tuple of legs; a leg says where the hand should be and when to go on.
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

PLAN_HZ = 60.0  # the control rate that the step counts of a leg are meant for


@dataclass(frozen=True)
class Aim:
    """Where the hand should be, for N environments.

    Attributes:
        point: Where the tool point should be (N, 3), m.
        rotation: How the hand should be turned; one for all or N.
        turn_weight: How many metres of position a radian of the turn is worth.
    """

    point: Floats
    rotation: Rotation
    turn_weight: float = 0.5


@dataclass(frozen=True)
class Leg:
    """One leg of a plan.

    Attributes:
        aim: Gives the hand's aim from the environment; called at every step, so it may follow
            what moves.
        fingers: Targets of the joints after the arm's (rad or m).
        near: The leg ends once the tool point is this close to the aim (m) ...
        turned: ... and the hand this close to its orientation (rad) ...
        at_least: ... but not before this many steps (of 1/60 s, at any control rate) ...
        at_most: ... and anyway after this many.
        speed: Fastest motion of the tool point (m/s).
    """

    aim: Callable[[Any], Aim]
    fingers: tuple[float, ...]
    near: float = 0.01
    turned: float = 0.15
    at_least: int = 0
    at_most: int = 150
    speed: float = 0.6


class Expert:
    """Follows a plan in each of N environments; subclasses say which plan and which hand.

    Attributes:
        plan: The legs in their order; the last one lasts until the episode ends.
        body: The body that carries the tool point.
        offset: The tool point in the body's frame (m).
        arm: How many of the robot's first joints move the hand.
        posture: Arm joints to prefer where the aim leaves a choice (rad).
        turn_speed: Fastest turn of the hand (rad/s).
        finger_speed: Largest action of the joints after the arm's.

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
        """Start the plan anew where an episode has ended, (N,)."""
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
        legs = self.leg.copy()  # an environment that moves on does so from the next step
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
        """Count a step on a leg, and go on to the next where it is over."""
        self.steps_in_leg[rows] += 1
        passed = self.steps_in_leg * (PLAN_HZ / control_hz)
        over = rows & (arrived | (passed >= leg.at_most)) & (passed >= leg.at_least)
        over &= self.leg < len(self.plan) - 1
        self.leg[over] += 1
        self.steps_in_leg[over] = 0


def _arrived(leg: Leg, aim: Aim, point: Floats, rotation: Rotation) -> NDArray[np.bool_]:
    """Return where the hand itself, not only its target, has come to the aim, (N,)."""
    near: NDArray[np.bool_] = np.linalg.norm(aim.point - point, axis=1) <= leg.near
    if aim.turn_weight > 0:
        near &= (aim.rotation * rotation.inv()).magnitude() <= leg.turned
    return near


def site(env: Any, name: str, shift: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Floats:
    """Return a site's position in each environment (N, 3), shifted (m)."""
    position: Floats = to_numpy(env.engine.site(name)) + np.array(shift)
    return position


def towards(
    name: str,
    rotation: Rotation,
    shift: tuple[float, float, float] = (0.0, 0.0, 0.0),
    turn_weight: float = 0.5,
) -> Callable[[Any], Aim]:
    """Return the aim at a site, shifted (m), for a leg."""
    return lambda env: Aim(site(env, name, shift), rotation, turn_weight)


def _shorten(vectors: Floats, longest: float) -> Floats:
    """Return vectors (N, 3) scaled down to a length where they exceed it."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    short: Floats = vectors * np.minimum(1.0, longest / np.maximum(length, 1e-12))
    return short
