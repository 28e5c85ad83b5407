"""The bonus for off-policy algorithms of Stable-Baselines3, computed when transitions are sampled.

A bonus stored with its transition would be stale: what was novel then may no longer be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
import torch
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from mimex.bonus.base import IntrinsicReward, require_no_episode
from mimex.data.windows import ring_indices, sum_actions
from mimex.interop.adapter import BonusAdapter, BonusOptions, require_learn_every
from mimex.interop.flatten import SpaceFlattener
from mimex.interop.sb3.buffers import BonusBuffer, NotPickled
from mimex.types import Window

_HER = (
    "hindsight relabels transitions, whose windows were never observed. Use "
    "HerReplayBuffer without a bonus, or BonusReplayBuffer without goals."
)
UNSUPPORTED = {
    "n_steps": "the bonus of the first step would count for all n. Use n_steps=1.",
    "n_sampled_goal": _HER,
    "goal_selection_strategy": _HER,
}
"""Arguments that a replay buffer with a bonus does not support, and why."""


class ReplayBonus(NotPickled, BonusAdapter):
    """The bonus of a replay buffer, for its ``replay_buffer_kwargs``.

    Stable-Baselines3's pickles of models and buffers do not contain it: save and load with
    ``mimex.interop.sb3.save`` and ``load``.

    Args:
        bonus: The intrinsic reward.
        learn_every: Sampled batches between two learning steps of the bonus.
        seed: Random seed of the choice among several environments.
        options: As of ``BonusAdapter``: ``beta``, ``ends_at``, ``stride``, ``view``, ``encoder``.
            An encoder gets observations as the buffer stores them (images as ``(N, C, H, W)``).
    """

    one_line = 'SAC("MlpPolicy", **with_bonus(env, bonus, off_policy=True))'
    replacement = "model.replay_buffer.bonus = ReplayBonus(...)"

    def __init__(
        self,
        bonus: IntrinsicReward,
        *,
        learn_every: int = 1,
        seed: int = 0,
        **options: Unpack[BonusOptions],
    ) -> None:
        require_no_episode(bonus, "a step sampled from a replay buffer")
        super().__init__(bonus, **options)
        require_learn_every(learn_every)
        self.learn_every, self.batches = learn_every, 0
        self.generator = np.random.default_rng(seed)

    def rewards(self, extrinsic: Tensor, window: Window, env_steps: int) -> Tensor:
        """The sum of both rewards ``(B,)`` of sampled transitions."""
        self.batches += 1
        if self.batches % self.learn_every:
            raw = self.bonus.reward(window)
        else:
            raw, self.metrics = self.bonus.learn(window)
        rewards = self.combine(extrinsic, raw.detach().to(extrinsic.device))
        # A schedule counts environment steps, not samples.
        self.scale.steps = env_steps
        return rewards.total

    def state_dict(self) -> dict[str, Any]:
        """The bonus, its scale and the counters."""
        self.require_bonus()
        generator = dict(self.generator.bit_generator.state)
        return super().state_dict() | {"batches": self.batches, "generator": generator}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``."""
        self.require_bonus()
        super().load_state_dict(state)
        self.batches = int(state["batches"])
        self.generator.bit_generator.state = state["generator"]


class BonusReplayBuffer(BonusBuffer, ReplayBuffer):
    """Stable-Baselines3's replay buffer, whose samples have the bonus in their rewards.

    ``SAC("MlpPolicy", **with_bonus(env, MIMEx(), off_policy=True))``. With Dict observations it
    creates a ``BonusDictReplayBuffer``. With a VecNormalize, the bonus sees normalized observations
    and is added to normalized rewards.
    """

    bonus: ReplayBonus
    takes = ReplayBonus

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name, reason in UNSUPPORTED.items():
            if name in kwargs:
                raise ValueError(f"replay_buffer_kwargs has {name}: {reason}")
        super().__init__(*args, **kwargs)
        if self.optimize_memory_usage:
            raise ValueError(
                "optimize_memory_usage=True stores no final observations: the window of an "
                "episode's last step would end in the next episode. Use False."
            )
        self._episode_step = np.zeros((self.buffer_size, self.n_envs), dtype=np.int64)
        self._added = 0  # transitions so far, over all environments
        if self.bonus.bonus is not None:
            self._flatteners()  # an unsupported space fails here, not at sampling

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        slot, before = self.pos, self.pos - 1
        super().add(obs, next_obs, action, reward, done, infos)
        # Stable-Baselines3 also resets without a done, when learn is called again.
        same = _equal(self.observations, slot, self.next_observations, before)
        continues = same & (self.dones[before] == 0) & (self._added > 0)
        self._episode_step[slot] = np.where(continues, self._episode_step[before] + 1, 0)
        self._added += self.n_envs

    def _flatteners(self) -> tuple[SpaceFlattener, SpaceFlattener | None]:
        self.bonus.require_bonus()
        return self.bonus.flatteners(self.observation_space, self.action_space)

    def _windows(
        self, slots: np.ndarray[Any, Any], envs: np.ndarray[Any, Any], env: VecNormalize | None
    ) -> Window:
        """The windows of the transitions at these slots of these environments, ``(B,)`` each."""
        flatten, flatten_actions = self._flatteners()
        length, stride = self.bonus.bonus.length, self.bonus.stride
        steps, after = length * stride, self.bonus.ends_at == "next"
        newest, capacity = torch.as_tensor(slots), self.buffer_size
        kept = self.size() - 1 - (self.pos - 1 - newest) % capacity  # stored before each
        oldest = newest - torch.minimum(torch.as_tensor(self._episode_step[slots, envs]), kept)
        # One observation more than is shown, for the action before the oldest one.
        path, stored = (
            part.squeeze(-1) for part in ring_indices(newest, oldest, capacity, steps + (not after))
        )
        shown = slice(stride, None, stride)
        valid, where = stored[:, shown], (path[:, shown].numpy(), envs[:, None])
        parts = []
        if valid.numel():
            rows = flatten(self._normalize_obs(_at(self.observations, where), env)).cpu()
            parts.append(rows.view(*valid.shape, -1) * valid[:, :, None])
        if after:
            final = self._normalize_obs(_at(self.next_observations, (slots, envs)), env)
            parts.append(flatten(final).cpu()[:, None])
            valid = torch.cat([valid, torch.ones_like(stored[:, :1])], dim=1)
        actions = None
        if flatten_actions is not None:
            # The action of a slot is the previous action of the observation after it.
            where = (path[:, :steps].numpy(), envs[:, None])
            taken = flatten_actions(_at(self.actions, where)).cpu()
            grid = (len(slots), length, stride)
            actions = sum_actions(taken.view(*grid, -1), stored[:, :steps].reshape(grid))
        return Window(torch.cat(parts, dim=1), valid, actions)

    def _get_samples(
        self, batch_inds: np.ndarray[Any, Any], env: VecNormalize | None = None
    ) -> Any:
        """The samples at these slots, each of a random environment."""
        self.bonus.require_bonus()
        slots, envs = batch_inds, self.bonus.generator.integers(self.n_envs, size=len(batch_inds))
        extrinsic = self._normalize_reward(self.rewards[slots, envs], env)
        window = self._windows(slots, envs, env)
        total = self.bonus.rewards(self.to_torch(extrinsic), window, self._added)
        final = self.dones[slots, envs] * (1 - self.timeouts[slots, envs])
        kind: Any = ReplayBufferSamples
        if isinstance(self.observations, dict):
            kind = DictReplayBufferSamples
        return kind(
            observations=self._tensors(self.observations, slots, envs, env),
            actions=self.to_torch(self.actions[slots, envs]),
            next_observations=self._tensors(self.next_observations, slots, envs, env),
            dones=self.to_torch(final.reshape(-1, 1)),
            rewards=total.reshape(-1, 1).float(),
        )

    def _tensors(self, stored: Any, slots: Any, envs: Any, env: VecNormalize | None) -> Any:
        values = self._normalize_obs(_at(stored, (slots, envs)), env)
        if isinstance(values, dict):
            return {key: self.to_torch(value) for key, value in values.items()}
        return self.to_torch(values)


class BonusDictReplayBuffer(BonusReplayBuffer, DictReplayBuffer):
    """``BonusReplayBuffer`` for Dict observations."""


BonusReplayBuffer.for_dicts = BonusDictReplayBuffer


def _at(stored: Any, where: tuple[Any, Any]) -> Any:
    """The stored values at these slots of these environments, as one batch."""
    if isinstance(stored, dict):
        return {key: _at(values, where) for key, values in stored.items()}
    return stored[where].reshape(-1, *stored.shape[2:])


def _equal(left: Any, here: int, right: Any, there: int) -> Any:
    """Which environments have the same observation at two slots: ``(N,)``."""
    if isinstance(left, dict):
        return np.all([_equal(left[key], here, right[key], there) for key in left], axis=0)
    same = left[here] == right[there]
    return np.all(same.reshape(len(same), -1), axis=1)
