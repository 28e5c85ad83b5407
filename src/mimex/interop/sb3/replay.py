"""The bonus for off-policy algorithms of Stable-Baselines3, computed when steps are sampled.

A bonus that was stored with its step would be stale: it says how novel the step was, not how
novel it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from mimex.bonus.base import IntrinsicReward, require_no_episode
from mimex.bonus.inputs import Encoder
from mimex.bonus.scale import BETA, BonusScale
from mimex.data.windows import EndsAt
from mimex.interop.reader import Key, SpaceReader, action_reader
from mimex.interop.sb3.replay_windows import EpisodeAges, replay_window
from mimex.types import Metrics, Window

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


class ReplayBonus:
    """A bonus and how replay shall use it; give it to the buffer by ``replay_buffer_kwargs``.

    Stable-Baselines3 saves models and buffers as pickles. A pickle of this holds no bonus: save
    and load with ``mimex.interop.sb3.save`` and ``load``.

    Args:
        bonus: What pays.
        beta: Size of the bonus beside the task's reward, or a ``BonusScale``.
        ends_at: The window of a transition ends at ``"next"``, the observation it led to, or at
            ``"observation"``, which it came from.
        stride: Steps between two of a window, whose actions are summed.
        learn_every: Sampled batches between two learning steps of the bonus.
        key: Of Dict observations, the entry to look at, or several; all when left out.
        encoder: Turns a batch of observations, as the buffer holds them, into features; needed
            for images (which Stable-Baselines3 stores as ``(N, C, H, W)``).
        seed: Of the choice of environments, where there are several.
    """

    def __init__(
        self,
        bonus: IntrinsicReward,
        *,
        beta: float | BonusScale = BETA,
        ends_at: EndsAt = "next",
        stride: int = 1,
        learn_every: int = 1,
        key: Key = None,
        encoder: Encoder | None = None,
        seed: int = 0,
    ) -> None:
        require_no_episode(bonus, "a step sampled from a replay buffer")
        self.scale = beta if isinstance(beta, BonusScale) else BonusScale(beta)
        if ends_at not in get_args(EndsAt):
            raise ValueError(f"ends_at={ends_at!r} is unknown: use 'next' or 'observation'.")
        for name, value in (("learn_every", learn_every), ("stride", stride)):
            if not 1 <= value < math.inf:
                raise ValueError(f"{name}={value} must be at least 1.")
        self.bonus: IntrinsicReward | None = bonus
        self.ends_at, self.stride, self.learn_every = ends_at, stride, learn_every
        self.key, self.encoder = key, encoder
        self.metrics: Metrics = {}  # of the newest learning step
        self.report: Metrics = {}  # of what was paid last
        self.batches = 0
        self.paid = {"extrinsic": 0.0, "intrinsic": 0.0}  # sums of absolute rewards so far
        self.generator = np.random.default_rng(seed)

    def require(self) -> IntrinsicReward:
        """The bonus, or an error that says where it went."""
        if self.bonus is None:
            raise RuntimeError(
                "this replay buffer came out of a pickle, which does not hold the bonus: use "
                "mimex.interop.sb3.load, or set model.replay_buffer.pays = ReplayBonus(...)."
            )
        return self.bonus

    def pay(self, extrinsic: torch.Tensor, window: Window, env_steps: int) -> torch.Tensor:
        """The sum of both rewards ``(B,)`` of sampled transitions."""
        bonus = self.require()
        self.batches += 1
        if self.batches % self.learn_every:
            raw = bonus.reward(window)
        else:
            raw, self.metrics = bonus.learn(window)
        rewards = self.scale.combine(extrinsic, raw.detach().to(extrinsic.device))
        # A schedule goes by steps of the environment, not by how often they are sampled.
        self.scale.steps = env_steps
        self.report = self.scale.metrics(raw, rewards)
        self.paid["extrinsic"] += float(rewards.extrinsic.abs().sum())
        self.paid["intrinsic"] += float(rewards.intrinsic.abs().sum())
        return rewards.total

    def state_dict(self) -> dict[str, Any]:
        """The bonus, its scale and the counters."""
        return {
            "bonus": self.require().state_dict(),
            "scale": self.scale.state_dict(),
            "batches": self.batches,
            "paid": dict(self.paid),
            "generator": dict(self.generator.bit_generator.state),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self.require().load_state_dict(state["bonus"])
        self.scale.load_state_dict(state["scale"])
        self.batches, self.paid = int(state["batches"]), dict(state["paid"])
        self.generator.bit_generator.state = state["generator"]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"bonus": None, "encoder": None}


class BonusReplayBuffer(ReplayBuffer):
    """Stable-Baselines3's replay buffer, whose samples have the bonus in their rewards.

    ``SAC("MlpPolicy", env, replay_buffer_class=BonusReplayBuffer,
    replay_buffer_kwargs={"pays": ReplayBonus(MIMEx())})``. With Dict observations it makes a
    ``BonusDictReplayBuffer``. Windows are of what the policy sees: with a VecNormalize, of
    normalised observations; the bonus joins the normalised reward.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> BonusReplayBuffer:
        space = kwargs.get("observation_space", args[1] if len(args) > 1 else None)
        chosen = BonusDictReplayBuffer if isinstance(space, spaces.Dict) else cls
        return super().__new__(chosen)

    def __init__(self, *args: Any, pays: ReplayBonus, **kwargs: Any) -> None:
        for name, reason in REFUSED.items():
            if name in kwargs:
                raise ValueError(f"replay_buffer_kwargs has {name}: {reason}")
        super().__init__(*args, **kwargs)
        if self.optimize_memory_usage:
            raise ValueError(
                "optimize_memory_usage=True keeps no final observations: the window of an "
                "episode's last step would end in the next episode. Use False."
            )
        self.pays = pays
        self._ages = EpisodeAges(self.buffer_size, self.n_envs)
        self._added = 0  # transitions so far, over all environments
        if pays.bonus is not None:
            self._readers()  # refuse now what sampling could not read

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        self._ages.add(self.pos, obs, next_obs, done)
        super().add(obs, next_obs, action, reward, done, infos)
        self._added += self.n_envs

    def _readers(self) -> tuple[SpaceReader, SpaceReader | None]:
        read = SpaceReader(self.observation_space, key=self.pays.key, encoder=self.pays.encoder)
        return read, action_reader(self.pays.require(), self.action_space)

    def _windows(
        self, slots: np.ndarray[Any, Any], envs: np.ndarray[Any, Any], env: VecNormalize | None
    ) -> Window:
        read, read_action = self._readers()
        return replay_window(
            self,
            slots,
            envs,
            ages=self._ages.of,
            length=self.pays.require().length,
            stride=self.pays.stride,
            ends_at=self.pays.ends_at,
            read=lambda values: read(self._normalize_obs(values, env)),
            read_action=read_action,
        )

    def _sampled(self, slots: np.ndarray[Any, Any], env: VecNormalize | None) -> dict[str, Any]:
        """The fields of the samples at these slots, each of a random environment."""
        envs = self.pays.generator.integers(self.n_envs, size=len(slots))
        extrinsic = self._normalize_reward(self.rewards[slots, envs], env)
        window = self._windows(slots, envs, env)
        total = self.pays.pay(self.to_torch(extrinsic), window, self._added)
        final = self.dones[slots, envs] * (1 - self.timeouts[slots, envs])
        return {
            "observations": self._tensors(self.observations, slots, envs, env),
            "actions": self.to_torch(self.actions[slots, envs]),
            "next_observations": self._tensors(self.next_observations, slots, envs, env),
            "dones": self.to_torch(final.reshape(-1, 1)),
            "rewards": total.reshape(-1, 1).float(),
        }

    def _tensors(self, stored: Any, slots: Any, envs: Any, env: VecNormalize | None) -> Any:
        if isinstance(stored, dict):
            chosen = {key: values[slots, envs] for key, values in stored.items()}
            values = self._normalize_obs(chosen, env)
            assert isinstance(values, dict)
            return {key: self.to_torch(value) for key, value in values.items()}
        array = self._normalize_obs(stored[slots, envs], env)
        assert isinstance(array, np.ndarray)
        return self.to_torch(array)

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
