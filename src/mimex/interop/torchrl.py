"""The bonus for TorchRL, as a transform of its environments.

Tested with torchrl 0.14.1 and tensordict 0.14.3 beside torch 2.13. TorchRL's compiled extension
does not load there, and is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torchrl.data import Composite, Unbounded
from torchrl.envs import Transform

from mimex.bonus.base import IntrinsicReward
from mimex.interop.stream import BonusStream, StreamOptions


class BonusTransform(Transform):  # type: ignore[misc]
    """Adds the bonus to ``"reward"``, and trains it.

    ``TransformedEnv(GymEnv("Pendulum-v1"), BonusTransform(MIMEx()))``. Steps also have
    ``"intrinsic_reward"`` and ``"extrinsic_reward"``. Use one transform around batched environments
    (``TransformedEnv(ParallelEnv(...), ...)``), so that all share one bonus.

    Args:
        bonus: The intrinsic reward. Discrete actions must be one-hot, as GymEnv returns them: ICM
            and E3B then take ``discrete=True``. For one-hot observations give
            ``discrete_obs=True``.
        add: Whether to add the bonus to ``"reward"``.
        observation_key: The entry that the bonus sees.
        options: As of ``BonusStream``: ``beta``, ``ends_at``, ``learn_every``, ``encoder``, ...
    """

    def __init__(
        self,
        bonus: IntrinsicReward,
        *,
        add: bool = True,
        observation_key: str = "observation",
        **options: Unpack[StreamOptions],
    ) -> None:
        super().__init__(
            in_keys=[observation_key, "reward"], out_keys=["intrinsic_reward", "extrinsic_reward"]
        )
        self.bonus, self.add, self.observation_key = bonus, add, observation_key
        self._options = options
        self.stream: BonusStream | None = None  # created at the first reset

    def _reset(self, tensordict: Any, tensordict_reset: Any) -> Any:
        observations = self._flat(tensordict_reset, tensordict_reset[self.observation_key])
        if self.stream is None:
            action_dim = getattr(self.bonus, "action_dim", None) or 1
            observation_space = spaces.Box(-np.inf, np.inf, observations.shape[1:])
            actions = spaces.Box(-np.inf, np.inf, (action_dim,))
            self.stream = BonusStream(
                self.bonus, len(observations), observation_space, actions, **self._options
            )
        which = None if tensordict is None else tensordict.get("_reset", None)
        self.stream.start(observations, None if which is None else which.reshape(-1).numpy())
        for key in self.out_keys:
            tensordict_reset.set(key, torch.zeros(*tensordict_reset.batch_size, 1))
        return tensordict_reset

    def _step(self, tensordict: Any, next_tensordict: Any) -> Any:
        reward = next_tensordict["reward"]
        rewards = self._started().step(
            self._flat(tensordict, tensordict["action"]),
            self._flat(next_tensordict, next_tensordict[self.observation_key]),
            reward.reshape(-1),
            next_tensordict["done"].reshape(-1),
        )
        next_tensordict.set("intrinsic_reward", rewards.intrinsic.view(reward.shape).float())
        next_tensordict.set("extrinsic_reward", rewards.extrinsic.view(reward.shape).float())
        if self.add:
            next_tensordict.set("reward", rewards.total.view(reward.shape).to(reward.dtype))
        return next_tensordict

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        """Adds both rewards to the spec."""
        shape = (*observation_spec.shape, 1)
        for key in self.out_keys:
            observation_spec[key] = Unbounded(shape=shape, device=observation_spec.device)
        return observation_spec

    @staticmethod
    def _flat(tensordict: Any, values: Tensor) -> Tensor:
        """Flattens the batch dimensions of values ``(*batch, ...)`` to ``(N, ...)``."""
        return values.reshape(-1, *values.shape[len(tensordict.batch_size) :]).cpu()

    def _started(self) -> BonusStream:
        if self.stream is None:
            raise RuntimeError("reset() the environment first: its shapes are not known yet.")
        return self.stream

    def bonus_state_dict(self) -> dict[str, Any]:
        """The bonus, its scale and the windows (``state_dict`` is PyTorch's, and has none)."""
        return self._started().state_dict()

    def load_bonus_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``bonus_state_dict``; reset the environment before."""
        self._started().load_state_dict(state)
