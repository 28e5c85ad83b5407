"""What the agent sees: joints, the whole state, or the wrist camera's picture and the joints."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mimex.envs.arrays import side_by_side
from mimex.envs.engine import ALL, Engine, Rows
from mimex.envs.robots.base import Robot
from mimex.envs.tasks.base import Task

Array = NDArray[Any]
Observation = Array | dict[str, Array]

VELOCITY_SCALE = 0.1  # published


class Proprioception:
    """Joint positions scaled to [-1, 1] by their limits, and joint velocities times 0.1."""

    def __init__(self, robot: Robot, engine: Engine) -> None:
        positions, velocities = engine.joint_columns(robot.joints)
        self._qpos, self._qvel = engine.qpos[:, positions], engine.qvel[:, velocities]  # live
        ranges = np.array([engine.model.joint(n).range for n in robot.joints])
        self.limits = self.low, self.high = engine.array(ranges[:, 0]), engine.array(ranges[:, 1])
        self._scale = 2.0 / (self.high - self.low)
        self.size = 2 * len(robot.joints)

    def __call__(self, rows: Rows = ALL) -> tuple[Array, Array]:
        """Return positions and velocities as observed, (rows, joints) each."""
        return (self._qpos[rows] - self.low) * self._scale - 1.0, self._qvel[rows] * VELOCITY_SCALE


def state_vector(proprioception: Proprioception, task: Task | None, rows: Rows) -> Array:
    """Return proprioception and, given a task, all it knows beyond: float32 (rows, numbers)."""
    blocks = proprioception(rows) + (() if task is None else task.oracle(rows))
    out: Array = side_by_side(blocks)
    return out


def observation_space(kind: str, size: int, image_size: int) -> spaces.Space[Any]:
    """Return the space of one environment's observation.

    Args:
        kind: "oracle", "robot" or "pixels".
        size: How many numbers the vector part has.
        image_size: Width and height of the picture.
    """
    vector = spaces.Box(-np.inf, np.inf, (size,), np.float32)
    if kind != "pixels":
        return vector
    picture = spaces.Box(0, 255, (3, image_size, image_size), np.uint8)
    return spaces.Dict({"image": picture, "robot": vector})
