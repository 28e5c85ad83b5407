"""The bonus for off-policy algorithms of Stable-Baselines3, computed when steps are sampled.

A bonus that was stored with its step would be stale: it says how novel the step was, not how
novel it is.
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
from mimex.interop.reader import SpaceReader
from mimex.interop.sb3.buffers import BonusBuffer, LeftOutOfPickles
from mimex.interop.weighted import BonusOptions, WeightedBonus, require_learn_every
from mimex.types import Window

_HER = (
    "hindsight makes up transitions that were never played, whose windows nobody saw. Use "
    "HerReplayBuffer without a bonus, or BonusReplayBuffer without goals."
)
REFUSED = {
    "n_steps": "a bonus of the first step alone would be paid for n. Use n_steps=1.",
    "n_sampled_goal": _HER,
    "goal_selection_strategy": _HER,
}
"""What a replay buffer with a bonus cannot do, and why."""


class ReplayBonus(LeftOutOfPickles, WeightedBonus):
    """A bonus and how replay shall use it; give it to the buffer by ``replay_buffer_kwargs``.

    Stable-Baselines3 saves models and buffers as pickles. A pickle of this holds no bonus: save
    and load with ``mimex.interop.sb3.save`` and ``load``.

    Args:
        bonus: The intrinsic reward.
        learn_every: Sampled batches between two learning steps of the bonus.
        seed: Of the choice of environments, where there are several.
        options: As of ``WeightedBonus``: ``beta``, ``ends_at``, ``stride``, ``view``, ``encoder``.
            An encoder gets observations as the buffer holds them (images as ``(N, C, H, W)``).
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
        # A schedule goes by steps of the environment, not by how often they are sampled.
        self.scale.steps = env_steps
        return rewards.total

    def state_dict(self) -> dict[str, Any]:
        """The bonus, its scale and the counters."""
        self.require()
        generator = dict(self.generator.bit_generator.state)
        return super().state_dict() | {"batches": self.batches, "generator": generator}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self.require()
        super().load_state_dict(state)
        self.batches = int(state["batches"])
        self.generator.bit_generator.state = state["generator"]


class BonusReplayBuffer(BonusBuffer, ReplayBuffer):
    """Stable-Baselines3's replay buffer, whose samples have the bonus in their rewards.

    ``SAC("MlpPolicy", **with_bonus(env, MIMEx(), off_policy=True))``. With Dict observations it
    makes a ``BonusDictReplayBuffer``. Windows are of what the policy sees: with a VecNormalize, of
    normalized observations; the bonus joins the normalized reward.
    """

    bonus: ReplayBonus
    takes = ReplayBonus

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name, reason in REFUSED.items():
            if name in kwargs:
                raise ValueError(f"replay_buffer_kwargs has {name}: {reason}")
        super().__init__(*args, **kwargs)
        if self.optimize_memory_usage:
            raise ValueError(
                "optimize_memory_usage=True keeps no final observations: the window of an "
                "episode's last step would end in the next episode. Use False."
            )
        # How many observations of the same episode were before each one in the ring.
        self._ages = np.zeros((self.buffer_size, self.n_envs), dtype=np.int64)
        self._added = 0  # transitions so far, over all environments
        if self.bonus.bonus is not None:
            self._readers()  # refuse now what sampling could not read

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        slot, before = self.pos, self.pos - 1
        super().add(obs, next_obs, action, reward, done, infos)
        # Stable-Baselines3 also resets without a done, when learn is called anew.
        led_here = _equal(self.observations, slot, self.next_observations, before)
        continues = led_here & (self.dones[before] == 0) & (self._added > 0)
        self._ages[slot] = np.where(continues, self._ages[before] + 1, 0)
        self._added += self.n_envs

    def _readers(self) -> tuple[SpaceReader, SpaceReader | None]:
        self.bonus.require()
        return self.bonus.readers(self.observation_space, self.action_space)

    def _windows(
        self, slots: np.ndarray[Any, Any], envs: np.ndarray[Any, Any], env: VecNormalize | None
    ) -> Window:
        """The windows of the transitions at these slots of these environments, ``(B,)`` each."""
        read, read_action = self._readers()
        length, stride = self.bonus.bonus.length, self.bonus.stride
        steps, after = length * stride, self.bonus.ends_at == "next"
        newest, capacity = torch.as_tensor(slots), self.buffer_size
        kept = self.size() - 1 - (self.pos - 1 - newest) % capacity  # still there before each
        oldest = newest - torch.minimum(torch.as_tensor(self._ages[slots, envs]), kept)
        # Of stored observations; one more than are shown, for the action that led to the oldest.
        path, known = (
            part.squeeze(-1) for part in ring_indices(newest, oldest, capacity, steps + (not after))
        )
        shown = slice(stride, None, stride)
        valid, places = known[:, shown], (path[:, shown].numpy(), envs[:, None])
        parts = []
        if valid.numel():
            rows = read(self._normalize_obs(_at(self.observations, places), env)).cpu()
            parts.append(rows.view(*valid.shape, -1) * valid[:, :, None])
        if after:
            rows = read(self._normalize_obs(_at(self.next_observations, (slots, envs)), env)).cpu()
            parts.append(rows[:, None])
            valid = torch.cat([valid, torch.ones_like(known[:, :1])], dim=1)
        actions = None
        if read_action is not None:
            # The action at a stored step led to the observation after it; to a start none led.
            led = read_action(_at(self.actions, (path[:, :steps].numpy(), envs[:, None]))).cpu()
            grid = (len(slots), length, stride)
            actions = sum_actions(led.view(*grid, -1), known[:, :steps].reshape(grid))
        return Window(torch.cat(parts, dim=1), valid, actions)

    def _sampled(self, slots: np.ndarray[Any, Any], env: VecNormalize | None) -> dict[str, Any]:
        """The fields of the samples at these slots, each of a random environment."""
        self.bonus.require()
        envs = self.bonus.generator.integers(self.n_envs, size=len(slots))
        extrinsic = self._normalize_reward(self.rewards[slots, envs], env)
        window = self._windows(slots, envs, env)
        total = self.bonus.rewards(self.to_torch(extrinsic), window, self._added)
        final = self.dones[slots, envs] * (1 - self.timeouts[slots, envs])
        return {
            "observations": self._tensors(self.observations, slots, envs, env),
            "actions": self.to_torch(self.actions[slots, envs]),
            "next_observations": self._tensors(self.next_observations, slots, envs, env),
            "dones": self.to_torch(final.reshape(-1, 1)),
            "rewards": total.reshape(-1, 1).float(),
        }

    def _tensors(self, stored: Any, slots: Any, envs: Any, env: VecNormalize | None) -> Any:
        values = self._normalize_obs(_at(stored, (slots, envs)), env)
        if isinstance(values, dict):
            return {key: self.to_torch(value) for key, value in values.items()}
        return self.to_torch(values)

    def _get_samples(
        self, batch_inds: np.ndarray[Any, Any], env: VecNormalize | None = None
    ) -> ReplayBufferSamples:
        return ReplayBufferSamples(**self._sampled(batch_inds, env))


class BonusDictReplayBuffer(BonusReplayBuffer, DictReplayBuffer):
    """``BonusReplayBuffer`` for Dict observations."""

    def _get_samples(  # type: ignore[override]
        self, batch_inds: np.ndarray[Any, Any], env: VecNormalize | None = None
    ) -> DictReplayBufferSamples:
        return DictReplayBufferSamples(**self._sampled(batch_inds, env))


BonusReplayBuffer.for_dicts = BonusDictReplayBuffer


def _at(stored: Any, places: tuple[Any, Any]) -> Any:
    """What is stored at these slots of these environments, flattened to a batch."""
    if isinstance(stored, dict):
        return {key: _at(values, places) for key, values in stored.items()}
    return stored[places].reshape(-1, *stored.shape[2:])


def _equal(left: Any, here: int, right: Any, there: int) -> Any:
    """Which environments have the same observation at two slots: ``(N,)``."""
    if isinstance(left, dict):
        return np.all([_equal(left[key], here, right[key], there) for key in left], axis=0)
    same = left[here] == right[there]
    return np.all(same.reshape(len(same), -1), axis=1)
