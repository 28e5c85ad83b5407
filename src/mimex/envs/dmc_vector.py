"""Several copies of a suite's task as one vector environment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mimex.envs.dmc import DMC
from mimex.envs.vector_info import final_observations, mask_of

Info = dict[str, Any]


class VectorDMC(VectorEnv[Any, Any, Any]):
    """N copies of one task, one after the other in this process, with cameras in common.

    An episode that ends is reset in the same step: the observation returned is the next
    episode's first, and `info["final_obs"]` holds the ended one's last.

    Attributes:
        copies: The environments.

    Args:
        task: Domain and task, for example "cartpole_swingup_sparse".
        num_envs: How many.
        render_mode: "rgb_array" lets `render` return pictures, or None.
        **settings: Keyword arguments of `DMC`.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration)
        "render_modes": ["rgb_array"],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self, task: str, num_envs: int = 1, *, render_mode: str | None = None, **settings: Any
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}, but must be 1 or more")
        self.num_envs, self.render_mode = num_envs, render_mode
        self.copies = [DMC(task, render_mode=render_mode, **settings) for _ in range(num_envs)]
        for copy in self.copies[1:]:
            copy.share_cameras(self.copies[0])
        self.metadata = self.metadata | {"render_fps": self.copies[0].metadata["render_fps"]}
        self.single_observation_space = self.copies[0].observation_space
        self.single_action_space = self.copies[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @property
    def frames_a_step(self) -> int:
        """Control steps that an action is applied for."""
        return self.copies[0].frames_a_step

    @property
    def stack(self) -> int:
        """Newest pictures in an observation."""
        return self.copies[0].stack

    @property
    def episode_steps(self) -> int:
        """Steps after which an episode is truncated."""
        limit: float = self.copies[0].environment._step_limit
        return math.ceil(limit / self.frames_a_step)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], Info]:
        """Begin new episodes; of one seed environment i takes the i-th after it."""
        seeds: Sequence[int | None]
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = seed
        pairs = zip(self.copies, seeds, strict=True)
        return np.stack([copy.reset(seed=own)[0] for copy, own in pairs]), {}

    def step(
        self, actions: Any
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Apply an action in every environment."""
        results = [copy.step(action) for copy, action in zip(self.copies, actions, strict=True)]
        observation = np.stack([result[0] for result in results])
        rewards = np.array([result[1] for result in results])
        terminated = np.array([result[2] for result in results])
        truncated = np.array([result[3] for result in results])
        info: Info = {}
        rows = np.flatnonzero(terminated | truncated).astype(np.int32)
        if len(rows):
            ended = mask_of(rows, self.num_envs)
            finals = final_observations(observation, rows, self.num_envs)
            info = {"final_obs": finals, "_final_obs": ended}
            info |= {"final_info": {}, "_final_info": ended}
            for row in rows:
                observation[row] = self.copies[row].reset()[0]
        return observation, rewards, terminated, truncated, info

    place_kind = "state"

    def places(self) -> NDArray[np.float32]:
        """Return what the tasks observe of their states (N, D), whatever the observation is."""
        return np.stack([copy.state() for copy in self.copies])

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture (height, width, 3) per environment in render mode "rgb_array"."""
        return None if self.render_mode is None else tuple(copy.render() for copy in self.copies)

    def close_extras(self, **kwargs: Any) -> None:
        """Free the graphics."""
        self.copies[0].close()

    def get_state(self) -> dict[str, Any]:
        """Return all that the environments need to continue bit for bit."""
        return {"copies": [copy.get_state() for copy in self.copies]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned, here or in another process."""
        for copy, own in zip(self.copies, state["copies"], strict=True):
            copy.set_state(own)
