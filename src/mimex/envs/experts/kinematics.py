"""Forward and differential inverse kinematics of a robot's hand."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from mujoco import batch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from mimex.envs.robots.base import Robot

Floats = NDArray[np.floating[Any]]

_DAMPING = 0.05  # of the least squares: keeps joint steps small near singularities
_DRIFT = 0.05  # fraction of the distance to the preferred posture per step


class Kinematics:
    """Forward and differential inverse kinematics of a tool point, for N robots at once.

    Args:
        robot: The robot.
        num_envs: Number of robots N.
        body: The body that carries the tool point.
        offset: The tool point in the body's frame (m).
        arm: Number of arm joints, the first joints of the robot.
    """

    def __init__(
        self, robot: Robot, num_envs: int, body: str, offset: tuple[float, float, float], arm: int
    ) -> None:
        spec = robot.load()
        spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
        model = spec.compile()
        joints = [model.joint(name) for name in robot.joints[:arm]]
        self.lower, self.upper = np.array([joint.range for joint in joints]).T
        self._offset = np.array(offset)
        self._body = int(model.body(body).id)
        self._columns = [int(joint.qposadr[0]) for joint in joints]
        self._batch = batch.Batch(model, num_envs, 1)
        self._qpos = self._batch.bind("qpos")
        self._xpos = self._batch.bind("xpos")[:, self._body]
        self._xmat = self._batch.bind("xmat")[:, self._body]

    def pose(self, joints: Floats) -> tuple[Floats, Rotation]:
        """Return the tool point (N, 3) and the hand's orientation for arm joints (N, arm)."""
        self._qpos[:, self._columns] = joints
        self._batch.forward(stage=mujoco.mjtStage.mjSTAGE_POS.value)
        matrix = self._xmat.reshape(-1, 3, 3)
        return self._xpos + matrix @ self._offset, Rotation.from_matrix(matrix)

    def step(
        self, joints: Floats, shift: Floats, turn: Floats, turn_weight: float, posture: Floats
    ) -> Floats:
        """Return joint positions after a small motion of the hand, by damped least squares.

        Args:
            joints: Current arm joint positions (N, arm).
            shift: Translation of the tool point (N, 3), m.
            turn: Rotation vector (N, 3), rad, in world axes.
            turn_weight: Weight of the rotation relative to the translation (m/rad).
            posture: Joint positions to drift to in the null space of the hand's motion (arm,).

        Returns:
            New joint positions (N, arm), within the limits.
        """
        point, _ = self.pose(joints)
        moves, turns = self._batch.jac(self._body, point)
        wanted = np.concatenate([shift, turn * turn_weight], axis=1)  # (N, 6)
        jacobian = np.concatenate([moves, turns * turn_weight], axis=1)  # (N, 6, dofs)
        jacobian = jacobian[:, :, self._columns]
        gram = jacobian @ jacobian.transpose(0, 2, 1) + _DAMPING**2 * np.eye(6)
        drift = _DRIFT * (posture - joints)
        rest = wanted - (jacobian @ drift[..., None])[..., 0]
        effort = np.linalg.solve(gram, rest[..., None])  # (N, 6, 1)
        change = drift + (jacobian.transpose(0, 2, 1) @ effort)[..., 0]
        moved: Floats = np.clip(joints + change, self.lower, self.upper)
        return moved
