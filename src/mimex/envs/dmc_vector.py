"""Several copies of a suite's task as one vector environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from mimex.envs.dmc import DMC


class VectorDMC(SyncVectorEnv[Any, Any]):
    """N copies of one task, one after the other in this process, with cameras in common.

    An episode that ends is reset in the same step: the observation returned is the next
    episode's first, and `info["final_obs"]` holds the ended one's last.

    Args:
        task: Domain and task, for example "cartpole_swingup_sparse".
        num_envs: How many.
        render_mode: "rgb_array" lets `render` return pictures, or None.
        **settings: Keyword arguments of `DMC`.
    """

    def __init__(
        self, task: str, num_envs: int = 1, *, render_mode: str | None = None, **settings: Any
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}, but must be 1 or more")
        copy = partial(DMC, task, render_mode=render_mode, **settings)
        super().__init__([copy] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.render_mode = render_mode
        self.copies: list[Any] = list(self.envs)
        for other in self.copies[1:]:
            other.share_cameras(self.copies[0])

    @property
    def frames_a_step(self) -> int:
        """Control steps that an action is applied for."""
        return int(self.copies[0].frames_a_step)

    @property
    def stack(self) -> int:
        """Newest pictures in an observation."""
        return int(self.copies[0].stack)

    @property
    def episode_steps(self) -> int:
        """Steps after which an episode is truncated."""
        limit: float = self.copies[0].environment._step_limit
        return math.ceil(limit / self.frames_a_step)

    position_kind = "state"

    def positions(self) -> NDArray[np.float32]:
        """Return what the tasks observe of their states (N, D), whatever the observation is."""
        return np.stack([copy.state() for copy in self.copies])

    @property
    def observation_groups(self) -> dict[str, tuple[int, int]]:
        """First column of each named part of the state, and the one past its last."""
        return dict(self.copies[0].observation_groups)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return what every running episode is made of, (N, ...) by name, for `restore`."""
        states = [copy.snapshot() for copy in self.copies]
        return {name: np.stack([state[name] for state in states]) for name in states[0]}

    def restore(
        self, rows: NDArray[np.integer[Any]], states: Mapping[str, NDArray[Any]]
    ) -> NDArray[Any]:
        """Begin new episodes of some copies at states that `snapshot` gave.

        Args:
            rows: The copies.
            states: One state for each of them, (rows, ...) by name.

        Returns:
            Their observations (rows, ...).
        """
        seen = [
            self.copies[row].restore({name: values[number] for name, values in states.items()})
            for number, row in enumerate(rows)
        ]
        return np.stack(seen)

    def get_state(self) -> dict[str, Any]:
        """Return all that the environments need to continue bit for bit."""
        return {"copies": [copy.get_state() for copy in self.copies]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned, here or in another process."""
        for copy, own in zip(self.copies, state["copies"], strict=True):
            copy.set_state(own)
