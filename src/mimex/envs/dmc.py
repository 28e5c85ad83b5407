"""The DeepMind Control suite as Gymnasium environments, from state or from pixels."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mimex.envs.dmc_physics import Memory, action_bounds, load_suite
from mimex.envs.dmc_tasks import camera_of, domain_and_task
from mimex.envs.nearest import choose

OBSERVATIONS = ("state", "pixels")
QUALITIES = ("published", "fast")
VIDEO_SIZE = (480, 640)
"""Height and width of rendered images (pixels), the largest that dm_control allows."""


class DMC(gymnasium.Env[Any, NDArray[np.float32]]):
    """One task of the suite, with the settings of DrQ-v2.

    Actions in [-1, 1] are mapped to the task's bounds. An episode that reaches its time limit is
    truncated; one that the task itself ends is terminated.

    Attributes:
        environment: The underlying dm_control environment.
        frames_a_step: Action repeat.

    Args:
        task: Domain and task, for example "cartpole_swingup_sparse"; or a dm_control environment.
        observation: "state" for the task's features in the suite's order, (D,) float32; "pixels"
            for stacked camera images, (3 * stack, size, size) uint8.
        action_repeat: Control steps per action; their rewards are summed.
        image_size: Width and height of the image (pixels).
        stack: Number of stacked frames, oldest first; the first frame of an episode is repeated.
        quality: "published" for dm_control's pixels; "fast" for images without shadows,
            reflections and anti-aliasing, whose scores are not comparable with published ones.
        threads: Number of rendering threads.
        render_mode: "rgb_array", or None.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration)
        "render_modes": ["rgb_array"],
        "render_fps": 50,
    }

    def __init__(
        self,
        task: Any,
        *,
        observation: str = "state",
        action_repeat: int = 2,
        image_size: int = 84,
        stack: int = 1,
        quality: str = "published",
        threads: int = 1,
        render_mode: str | None = None,
    ) -> None:
        self.observation = choose("observation", observation, OBSERVATIONS)
        self.quality = choose("quality", quality, QUALITIES)
        for name, value in (
            ("action_repeat", action_repeat),
            ("image_size", image_size),
            ("stack", stack),
        ):
            if value < 1:
                raise ValueError(f"{name} is {value}, but must be at least 1")
        if render_mode is not None:
            choose("render_mode", render_mode, ("rgb_array",))
        self.render_mode, self.frames_a_step, self.threads = render_mode, action_repeat, threads
        self.size, self.stack = image_size, stack
        named = isinstance(task, str)
        self.name: str = task if named else type(task.task).__name__
        self._view = camera_of(domain_and_task(task)[0]) if named else 0
        self.environment: Any = load_suite(task) if named else task
        self._physics, self._task = self.environment.physics, self.environment.task
        self._memory = Memory(self.environment)
        self.metadata = self.metadata | {
            "render_fps": round(1 / (self.environment.control_timestep() * action_repeat))
        }
        self._low, self._high = action_bounds(self.environment.action_spec())
        self.action_space = spaces.Box(-1.0, 1.0, self._low.shape, np.float32)
        self.observation_space = self._space()
        self._frames: deque[NDArray[np.uint8]] = deque(maxlen=stack)  # (3, size, size) each
        self._cameras: dict[str, Any] = {}

    def _space(self) -> spaces.Box:
        if self.observation == "pixels":
            return spaces.Box(0, 255, (3 * self.stack, self.size, self.size), np.uint8)
        parts = self.environment.observation_spec().values()
        width = sum(int(np.prod(part.shape)) for part in parts)
        return spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start a new episode; with a seed, it depends only on the seed."""
        super().reset(seed=seed)
        if seed is not None:
            self._task.random.seed(seed % 2**32)  # the range of the suite's generators
        timestep = self.environment.reset()
        self._frames.clear()
        return self._observe(timestep.observation), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Apply an action for `action_repeat` control steps, or until the episode ends."""
        values = np.asarray(action, np.float64)
        if values.shape != self._low.shape or not np.isfinite(values).all():
            raise ValueError(
                f"action is {action}, but must be {self._low.shape[0]} finite values in [-1, 1]"
            )
        values = self._low + (np.clip(values, -1, 1) + 1) * 0.5 * (self._high - self._low)
        reward = 0.0
        for _ in range(self.frames_a_step):
            timestep = self.environment.step(values)
            reward += timestep.reward
            if timestep.last():
                break
        ended, bootstraps = timestep.last(), timestep.discount != 0.0
        observation = self._observe(timestep.observation)
        return observation, float(reward), ended and not bootstraps, ended and bootstraps, {}

    def _observe(self, parts: Mapping[str, Any]) -> NDArray[Any]:
        if self.observation == "state":
            return _flat(parts)
        image = self._render("observation", (self.size, self.size), self.quality == "fast")
        self._frames.append(np.ascontiguousarray(image.transpose(2, 0, 1)))
        while len(self._frames) < self.stack:
            self._frames.append(self._frames[-1])
        return np.concatenate(self._frames)

    def state(self) -> NDArray[np.float32]:
        """Return the state features (D,), also if observation="pixels"."""
        return _flat(self._task.get_observation(self._physics))

    def render(self) -> Any:
        """Return an image (height, width, 3) if render_mode is "rgb_array"."""
        return None if self.render_mode is None else self._render("video", VIDEO_SIZE, False)

    def _render(self, name: str, size: tuple[int, int], fast: bool) -> NDArray[np.uint8]:
        from mimex.envs.dmc_camera import SuiteCamera  # loads OpenGL

        model, data = self._physics.model.ptr, self._physics.data.ptr
        if name not in self._cameras:
            self._cameras[name] = SuiteCamera(
                model, self._view, size, fast=fast, threads=self.threads
            )
        image: NDArray[np.uint8] = self._cameras[name].render(model, data)
        return image

    def share_cameras(self, other: DMC) -> None:
        """Use the cameras of another environment with the same task and settings."""
        self._cameras = other._cameras

    def close(self) -> None:
        """Free the OpenGL contexts."""
        for camera in self._cameras.values():
            camera.close()
        self._cameras.clear()

    @property
    def observation_groups(self) -> dict[str, tuple[int, int]]:
        """Column range (start, stop) of each named group of the state features."""
        found, start = {}, 0
        for name, part in self.environment.observation_spec().items():
            width = int(np.prod(part.shape))
            found[name] = (start, start + width)
            start += width
        return found

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return the state of the running episode, arrays by name, for `restore`."""
        frames = {"frames": np.stack(self._frames)} if self._frames else {}
        return frames | self._memory.episode()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Start a new episode at a state from `snapshot`; return its observation."""
        self._memory.begin_at(state)
        if self.observation == "state":
            return self.state()
        self._frames = deque(state["frames"], maxlen=self.stack)
        return np.concatenate(self._frames)

    def get_state(self) -> dict[str, Any]:
        """Return the full state as arrays and JSON values, for an exact restore."""
        frames = np.stack(self._frames) if self._frames else np.zeros(0, np.uint8)
        return {"name": self.name, "frames": frames, **self._memory.get()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `get_state`, of this or another process."""
        if state["name"] != self.name:
            raise ValueError(f"state is of task {state['name']}, but this one is {self.name}")
        self._memory.set(state)
        self._frames = deque(np.asarray(state["frames"]), maxlen=self.stack)


def _flat(parts: Mapping[str, Any]) -> NDArray[np.float32]:
    return np.concatenate([np.ravel(part) for part in parts.values()]).astype(np.float32)
