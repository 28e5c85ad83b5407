"""Robot, objects, simulations, cameras and observations of a task."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mimex.envs import scene
from mimex.envs.arrays import concat_columns
from mimex.envs.camera import Camera, Image
from mimex.envs.catalog import robot_and_kind, robot_named, task_class
from mimex.envs.engine import ALL, Array, CpuEngine, Engine, Rows
from mimex.envs.robots.base import Robot
from mimex.envs.settings import Settings
from mimex.envs.vector_step import Observation

ARENA_BYTES = 1 << 20  # contact memory of one simulation; MuJoCo's default is 14 MB
VIDEO_SIZE = (480, 640)  # pixels, height and width of videos
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


class World:
    """N simulations of a task: initial states and observations.

    Attributes:
        robot: The robot.
        model: The compiled MuJoCo model.
        engine: The simulations, as arrays by name.
        task: The task, on the engine's arrays.
        joints: Proprioception, with the joint limits.
        draws: Number of uniform draws in [-1, 1] that one initial state needs.
    """

    def __init__(self, task: str, num_envs: int, settings: Settings) -> None:
        robot, self._kind = robot_and_kind(task)
        self._settings = settings
        self.robot = robot_named(robot)
        self.model = self._compiled("fast")
        self._threads = settings.thread_count(num_envs)
        self.engine = self._simulations(num_envs)
        self.task = task_class(self._kind)(self.robot, self.engine, settings)
        self.joints = Proprioception(self.robot, self.engine)
        self.draws = len(self.robot.joints) + self.task.draws
        self._joint_columns, _ = self.engine.joint_columns(self.robot.joints)
        self._wrist = self._wrist_camera() if settings.observation == "pixels" else None
        self._video: Camera | None = None

    def _simulations(self, num_envs: int) -> Engine:
        substeps = self._settings.substeps()
        if self._settings.engine == "warp":
            from mimex.envs.warp_engine import WarpEngine

            return WarpEngine(self.model, num_envs, substeps)
        return CpuEngine(self.model, num_envs, self._threads, substeps)

    def _compiled(self, quality: Any) -> mujoco.MjModel:
        spec = scene.build(
            self.robot,
            self._kind,
            control_hz=self._settings.control_hz,
            substeps=self._settings.substeps(),
            quality=quality,
        )
        spec.memory = ARENA_BYTES
        return spec.compile()

    def _wrist_camera(self) -> Camera:
        return Camera(
            self.engine,
            self._compiled(self._settings.quality),
            self.robot.wrist_camera,
            (self._settings.image_size, self._settings.image_size),
            nice=self._settings.quality == "nice",
            channels_first=True,
            fovy=self._settings.fovy,
            threads=self._threads,
        )

    def start(self, rows: NDArray[np.int32], unit: Array) -> Array:
        """Set some simulations to an initial state; return the joint positions (rows, joints).

        Args:
            rows: Indices of the simulations.
            unit: Draws in [-1, 1], (rows, draws): for the joints, then for the task.
        """
        noise, placement = np.split(unit, [len(self.robot.joints)], axis=1)
        near_home = self.engine.array(self.robot.home + self._settings.joint_noise * noise)
        pose: Array = near_home.clip(*self.joints.limits)
        self.engine.reset(rows)
        self.engine.qpos[rows, self._joint_columns] = pose
        self.engine.ctrl[rows] = pose
        self.task.place(rows, placement)
        self.engine.refresh(rows)
        return pose

    def within_speed(self, targets: Array) -> Array:
        """Return joint targets (N, joints) clipped so that no joint exceeds its speed limit."""
        if self.robot.leads is None:
            return targets
        now, leads = self.engine.qpos[:, self._joint_columns], self.engine.array(self.robot.leads)
        return targets.clip(now - leads, now + leads)

    def observation_space(self) -> spaces.Space[Any]:
        """Return the space of one simulation's observation."""
        vector = spaces.Box(-np.inf, np.inf, self._vector(ALL).shape[1:], np.float32)
        if self._settings.observation != "pixels":
            return vector
        size = self._settings.image_size
        image = spaces.Box(0, 255, (3, size, size), np.uint8)
        return spaces.Dict({"image": image, "robot": vector})

    def observe(self, rows: Rows = ALL) -> Observation:
        """Return the current observations of some simulations."""
        vector = self._vector(rows)
        if self._wrist is None:
            return vector
        return {"image": self._wrist.render(rows), "robot": vector}

    def _groups(self, rows: Rows) -> dict[str, Array]:
        """Return proprioception and, for "oracle", the task's groups, (rows, D) by name."""
        positions, velocities = self.joints(rows)
        groups = {"joints": positions, "velocities": velocities}
        return groups | (self.task.oracle(rows) if self._settings.observation == "oracle" else {})

    def _vector(self, rows: Rows) -> NDArray[np.float32]:
        """Return the groups concatenated, (rows, D)."""
        vector: NDArray[np.float32] = concat_columns(tuple(self._groups(rows).values()))
        return vector

    def observation_groups(self) -> dict[str, tuple[int, int]]:
        """Return the column range (start, stop) of each group of the vector."""
        found, start = {}, 0
        for name, values in self._groups(ALL).items():
            found[name] = (start, start + values.shape[1])
            start += values.shape[1]
        return found

    def render(self) -> Image:
        """Return images of the fixed camera, (N, height, width, 3)."""
        if self._video is None:
            nice = self._compiled("nice")
            self._video = Camera(self.engine, nice, "video", VIDEO_SIZE, nice=True)
            self.engine.refresh()  # computes the fields that only cameras need
        return self._video.render()

    def close(self) -> None:
        """Free the OpenGL contexts."""
        for camera in (self._wrist, self._video):
            if camera is not None:
                camera.close()
