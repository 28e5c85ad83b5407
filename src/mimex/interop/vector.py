"""Wrappers of Gymnasium environments and vector environments, in all autoreset modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat, Unpack

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import (
    AutoresetMode,
    SyncVectorEnv,
    VectorActionWrapper,
    VectorEnv,
    VectorWrapper,
)
from gymnasium.wrappers import ClipAction, vector

from mimex.bonus.base import IntrinsicReward
from mimex.interop.flatten import stack
from mimex.interop.stream import BonusStream, StreamOptions


class BonusWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds the bonus to the rewards of an environment, and trains it.

    ``info`` has ``reward_extrinsic`` and ``reward_intrinsic``.

    Args:
        env: The environment.
        bonus: The intrinsic reward.
        options: As of ``BonusStream``: ``beta``, ``ends_at``, ``learn_every``, ...
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        bonus: IntrinsicReward,
        **options: Unpack[StreamOptions],
    ) -> None:
        super().__init__(env)
        self.stream = BonusStream(
            bonus, 1, env.observation_space, _clipped_space(env, env.action_space), **options
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.stream.start(stack([observation]))
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, extrinsic, terminated, truncated, info = self.env.step(action)
        rewards = self.stream.step(
            stack([action]),
            stack([observation]),
            np.array([float(extrinsic)]),
            [terminated or truncated],
        )
        parts = {"extrinsic": rewards.extrinsic, "intrinsic": rewards.intrinsic}
        info = info | {f"reward_{name}": float(part) for name, part in parts.items()}
        return observation, float(rewards.total), terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """The bonus, its scale and the windows, without the environment."""
        return self.stream.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``."""
        self.stream.load_state_dict(state)


class BonusVectorWrapper(VectorWrapper):
    """Adds the bonus to the rewards of a vector environment, and trains it.

    ``info`` has ``reward_extrinsic`` and ``reward_intrinsic``. Steps that only reset (NEXT_STEP)
    have no bonus. The bonus sees actions as clipped by a ClipAction wrapper, except for one inside
    of an AsyncVectorEnv: put that around this wrapper instead.

    Args:
        env: The vector environment.
        bonus: The intrinsic reward.
        autoreset_mode: For environments without ``metadata["autoreset_mode"]``.
        options: As of ``BonusStream``: ``beta``, ``ends_at``, ``learn_every``, ...
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        bonus: IntrinsicReward,
        *,
        autoreset_mode: AutoresetMode | None = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        super().__init__(env)
        mode = autoreset_mode or env.metadata.get("autoreset_mode")
        if mode is None:
            raise ValueError(
                f"{env} has no metadata['autoreset_mode']: give "
                "autoreset_mode=AutoresetMode.SAME_STEP, NEXT_STEP or DISABLED."
            )
        self.autoreset_mode = AutoresetMode(mode)
        actions = _clipped_space(env, env.single_action_space)
        self.stream = BonusStream(
            bonus, env.num_envs, env.single_observation_space, actions, **options
        )
        self._ended = np.zeros(env.num_envs, dtype=bool)  # at the step before

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        # Read first: Gymnasium's own environments remove it from the dict.
        which = None if options is None else options.get("reset_mask")
        observations, info = self.env.reset(seed=seed, options=options)
        self.stream.start(observations, which)
        self._ended = self._ended & ~which if which is not None else np.zeros_like(self._ended)
        return observations, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, extrinsic, terminated, truncated, info = self.env.step(actions)
        ended = np.asarray(terminated) | np.asarray(truncated)
        finals = ignored = None
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            finals = _finals(info, ended)
        elif self.autoreset_mode is AutoresetMode.NEXT_STEP:
            ignored = self._ended
        rewards = self.stream.step(
            actions, observations, extrinsic, ended, finals=finals, ignored=ignored
        )
        self._ended = ended if ignored is None else ended & ~ignored
        real = np.ones_like(ended) if ignored is None else ~ignored
        info = dict(info)
        for name, part in (("extrinsic", rewards.extrinsic), ("intrinsic", rewards.intrinsic)):
            info |= {f"reward_{name}": part.numpy(), f"_reward_{name}": real.copy()}
        total = rewards.total.numpy().astype(np.asarray(extrinsic).dtype)
        return observations, total, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """The bonus, its scale and the windows, without the environment."""
        ended = torch.tensor(self._ended)  # a tensor: torch.load(weights_only=True) reads no arrays
        return {"stream": self.stream.state_dict(), "ended": ended}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``."""
        self.stream.load_state_dict(state["stream"])
        self._ended = torch.as_tensor(state["ended"]).bool().clone().numpy()


wrap = BonusWrapper
"""Adds a bonus to an environment's rewards: ``wrap(env, MIMEx())``."""

wrap_vector = BonusVectorWrapper
"""Adds a bonus to a vector environment's rewards: ``wrap_vector(env, MIMEx())``."""


def _clipped_space(env: Any, space: spaces.Space[Any]) -> spaces.Space[Any]:
    """The action space after clipping by ClipAction wrappers, in the units of ``space``."""
    while isinstance(env, gymnasium.Wrapper | VectorWrapper | SyncVectorEnv):
        inner = env.envs[0] if isinstance(env, SyncVectorEnv) else env.env
        if isinstance(env, ClipAction | vector.ClipAction):
            found: spaces.Space[Any] = getattr(inner, "single_action_space", inner.action_space)
            return found
        if isinstance(env, gymnasium.ActionWrapper | VectorActionWrapper):
            return space  # other units from here on
        env = inner
    return space


def _finals(info: Mapping[str, Any], ended: np.ndarray[Any, Any]) -> list[Any]:
    """The final observations of the environments that ended, in order."""
    finals = info.get("final_obs")
    if finals is None:
        raise ValueError(
            "episodes ended, but info has no 'final_obs', which an environment with "
            "AutoresetMode.SAME_STEP returns with the next episode's first observation. If it "
            "has another mode, give autoreset_mode=..."
        )
    return [_single(finals, n) for n in np.flatnonzero(ended).tolist()]


def _single(values: Any, n: int) -> Any:
    """The n-th value of a batch, which may be a mapping."""
    if isinstance(values, Mapping):
        return {key: _single(value, n) for key, value in values.items()}
    return values[n]
