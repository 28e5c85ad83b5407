"""The bonus for TorchRL, as a transform of its environments.

Run with torchrl 0.14.1 and tensordict 0.14.3 beside torch 2.13. TorchRL's compiled half does
not load there; environments, transforms, collectors and losses do not need it.
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
    """Writes the bonus of each step to ``"intrinsic_reward"``, adds it to ``"reward"``, trains it.

    ``TransformedEnv(GymEnv("Pendulum-v1"), BonusTransform(MIMEx()))``. Keep one
    transform outside of batched environments (``TransformedEnv(ParallelEnv(...), ...)``), so that
    all environments share one bonus.

    Args:
        bonus: The intrinsic reward. Discrete actions must be one-hot, as GymEnv gives them: ICM and
            E3B then take ``discrete=True``. For one-hot observations give ``discrete_obs=True``.
        add: Whether ``"reward"`` becomes the sum of both; ``"extrinsic_reward"`` keeps the other
            part.
        observation_key: What the bonus looks at.
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
        self.stream: BonusStream | None = None  # made when the first observation tells its shape

    def _reset(self, tensordict: Any, tensordict_reset: Any) -> Any:
        observations = self._rows(tensordict_reset, tensordict_reset[self.observation_key])
        if self.stream is None:
            action_dim = getattr(self.bonus, "action_dim", None) or 1
            self.stream = BonusStream(
                self.bonus,
                len(observations),
                spaces.Box(-np.inf, np.inf, observations.shape[1:]),
                spaces.Box(-np.inf, np.inf, (action_dim,)),
                **self._options,
            )
        which = None if tensordict is None else tensordict.get("_reset", None)
        self.stream.start(observations, None if which is None else which.reshape(-1).numpy())
        zeros = torch.zeros(*tensordict_reset.batch_size, 1)
        for key in self.out_keys:
            tensordict_reset.set(key, zeros.clone())
        return tensordict_reset

    def _step(self, tensordict: Any, next_tensordict: Any) -> Any:
        if self.stream is None:
            raise RuntimeError("step() before reset(): the first observation is not known yet.")
        reward = next_tensordict["reward"]
        paid = self.stream.step(
            self._rows(tensordict, tensordict["action"]),
            self._rows(next_tensordict, next_tensordict[self.observation_key]),
            reward.reshape(-1),
            next_tensordict["done"].reshape(-1),
        )
        next_tensordict.set("intrinsic_reward", paid.intrinsic.view(reward.shape).float())
        next_tensordict.set("extrinsic_reward", paid.extrinsic.view(reward.shape).float())
        if self.add:
            next_tensordict.set("reward", paid.total.view(reward.shape).to(reward.dtype))
        return next_tensordict

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        """Adds the two parts of the reward to what a step returns."""
        shape = (*observation_spec.shape, 1)
        for key in self.out_keys:
            observation_spec[key] = Unbounded(shape=shape, device=observation_spec.device)
        return observation_spec

    @staticmethod
    def _rows(tensordict: Any, values: Tensor) -> Tensor:
        """Values ``(*batch, ...)`` as ``(N, ...)``; one environment is a batch of one."""
        return values.reshape(-1, *values.shape[len(tensordict.batch_size) :]).cpu()

    def bonus_state_dict(self) -> dict[str, Any]:
        """The bonus, its scale and the windows (``state_dict`` is PyTorch's, and has none)."""
        if self.stream is None:
            raise RuntimeError("there is no state before the first reset().")
        return self.stream.state_dict()

    def load_bonus_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``bonus_state_dict`` gave; reset the environment before."""
        if self.stream is None:
            raise RuntimeError("reset() the environment first: its shapes are not known yet.")
        self.stream.load_state_dict(state)
