"""One manipulation task as a single Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from mimex.envs.manipulation import VectorManipulation
from mimex.envs.vector_step import Observation


class Manipulation(gymnasium.Env[Any, NDArray[np.float32]]):
    """One task as a Gymnasium environment: the vector environment with one simulation.

    With the same seed it behaves like the first environment of the vector environment.

    Attributes:
        vector: The underlying vector environment.

    Args:
        task: Robot and task, for example "FrankaPick".
        render_mode: "rgb_array" for images of the fixed camera, or None.
        **settings: Fields of `mimex.envs.settings.Settings`.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration)
        "render_modes": ["rgb_array"],
        "render_fps": 60,
    }

    def __init__(self, task: str, *, render_mode: str | None = None, **settings: Any) -> None:
        self.vector = VectorManipulation(
            task,
            1,
            render_mode=render_mode,
            autoreset_mode=AutoresetMode.DISABLED,
            **settings,
        )
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": self.vector.metadata["render_fps"]}
        self.observation_space = self.vector.single_observation_space
        self.action_space = self.vector.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start a new episode; with a seed, it depends only on the seed."""
        observation, _ = self.vector.reset(seed=seed, options=options)
        self._np_random = self.vector.generators[0]
        if seed is not None:
            self._np_random_seed = seed
        return _first(observation), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Advance by one control step."""
        observation, rewards, terminated, truncated, info = self.vector.step(
            np.asarray(action)[None]
        )
        own = {key: value[0].item() for key, value in info.items() if not key.startswith("_")}
        return _first(observation), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), own

    def render(self) -> Any:
        """Return an image (height, width, 3) of the fixed camera if render_mode is "rgb_array"."""
        frames = self.vector.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Free the OpenGL contexts."""
        self.vector.close()

    def get_state(self) -> dict[str, Any]:
        """Return the full state, for an exact restore."""
        return self.vector.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `get_state`."""
        self.vector.set_state(state)
        self._np_random = self.vector.generators[0]

    def set_reward(self, weights: str | Mapping[str, float]) -> None:
        """Change the weights of the reward terms from the next step on."""
        self.vector.set_reward(weights)


def _first(observation: Observation) -> Observation:
    if isinstance(observation, dict):
        return {key: part[0] for key, part in observation.items()}
    row: NDArray[Any] = observation[0]
    return row
