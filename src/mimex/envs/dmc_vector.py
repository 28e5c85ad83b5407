"""Vector environment of a dm_control task."""

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
    """N copies of one task, stepped sequentially in this process, with shared cameras.

    An ended episode is reset in the same step: the returned observation is the first of the next
    episode, and `info["final_obs"]` holds the last of the ended one.

    Args:
        task: Domain and task, for example "cartpole_swingup_sparse".
        num_envs: Number of parallel environments.
        render_mode: "rgb_array", or None.
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
        """Action repeat."""
        return int(self.copies[0].frames_a_step)

    @property
    def stack(self) -> int:
        """Number of stacked frames in an observation."""
        return int(self.copies[0].stack)

    @property
    def episode_steps(self) -> int:
        """Steps until truncation."""
        limit: float = self.copies[0].environment._step_limit
        return math.ceil(limit / self.frames_a_step)

    position_kind = "state"

    def positions(self) -> NDArray[np.float32]:
        """Return the state features (N, D), also if observation="pixels"."""
        return np.stack([copy.state() for copy in self.copies])

    @property
    def observation_groups(self) -> dict[str, tuple[int, int]]:
        """Column range (start, stop) of each named group of the state features."""
        return dict(self.copies[0].observation_groups)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return the state of every running episode, (N, ...) by name, for `restore`."""
        states = [copy.snapshot() for copy in self.copies]
        return {name: np.stack([state[name] for state in states]) for name in states[0]}

    def restore(
        self, rows: NDArray[np.integer[Any]], states: Mapping[str, NDArray[Any]]
    ) -> NDArray[Any]:
        """Start new episodes in some environments at states from `snapshot`.

        Args:
            rows: Indices of the environments.
            states: One state for each of them, (rows, ...) by name.

        Returns:
            Their observations, (rows, ...).
        """
        seen = [
            self.copies[row].restore({name: values[index] for name, values in states.items()})
            for index, row in enumerate(rows)
        ]
        return np.stack(seen)

    def get_state(self) -> dict[str, Any]:
        """Return the full state, for an exact restore."""
        return {"copies": [copy.get_state() for copy in self.copies]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `get_state`, of this or another process."""
        for copy, own in zip(self.copies, state["copies"], strict=True):
            copy.set_state(own)
