"""The bonus for one Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat, Unpack

import gymnasium
import numpy as np

from mimex.bonus.base import IntrinsicReward
from mimex.interop.stream import BonusStream, StreamOptions


class BonusWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds the bonus to the rewards of an environment, and trains it.

    ``info["reward_extrinsic"]`` and ``info["reward_intrinsic"]`` keep the two apart.

    Args:
        env: The environment.
        bonus: What pays.
        options: As of ``BonusStream``: ``beta``, ``ends_at``, ``learn_every``, ...
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        bonus: IntrinsicReward,
        **options: Unpack[StreamOptions],
    ) -> None:
        super().__init__(env)
        self.stream = BonusStream(bonus, 1, env.observation_space, env.action_space, **options)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.stream.start(_batch(observation))
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, extrinsic, terminated, truncated, info = self.env.step(action)
        rewards = self.stream.step(
            np.asarray(action)[None],
            _batch(observation),
            np.array([float(extrinsic)]),
            [terminated or truncated],
        )
        info = {
            **info,
            "reward_extrinsic": float(rewards.extrinsic),
            "reward_intrinsic": float(rewards.intrinsic),
        }
        return observation, float(rewards.total), terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """The bonus, its scale and the windows; the environment itself is not part of it."""
        return self.stream.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self.stream.load_state_dict(state)


def wrap(
    env: gymnasium.Env[Any, Any], bonus: IntrinsicReward, **options: Unpack[StreamOptions]
) -> BonusWrapper:
    """Adds a bonus to an environment's rewards: ``wrap(env, MIMEx())``."""
    return BonusWrapper(env, bonus, **options)


def _batch(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {key: np.asarray(value)[None] for key, value in observation.items()}
    return np.asarray(observation)[None]
