"""On-policy agents: collect a rollout, build windows, compute the bonus, update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Generator, Tensor

from mimex.agents.actions import ActionAdapter
from mimex.agents.encoders import Encoder
from mimex.agents.factory import make_bonus, make_scale, make_view, seed_for
from mimex.agents.learner import Learner, WindowSettings
from mimex.bonus.base import EpisodicReward, IntrinsicReward
from mimex.bonus.scale import BonusScale, Rewards
from mimex.contracts import (
    SHOWN_WINDOWS,
    Policy,
    Scored,
    Stateful,
    Step,
    final_observations,
    frames_per_step,
    supports_tensors,
)
from mimex.data.rollout import ObsDict, Rollout
from mimex.data.windows import RolloutWindows, WindowIndex
from mimex.nn import processes
from mimex.nn.parallel import split_rows
from mimex.track.clock import Clock
from mimex.types import Array, Metrics

if TYPE_CHECKING:
    from mimex.config import TrainConfig

SCORED_WINDOWS, SCORED_FEATURES = 2048, 1 << 22
"""Minimum number of windows per scoring batch, and number of features (16 MB) to fill it up to."""

PROBE_WINDOWS = 256
"""Number of windows of the first rollout whose raw bonus is logged throughout the run."""


@dataclass(frozen=True)
class LoopSettings(WindowSettings):
    """Settings of rollouts, and of training the bonus on them."""

    rollout_steps: int = 32
    """Steps per environment and rollout."""
    bonus_minibatch: int = 512
    """Windows per optimizer step of the bonus, over all processes."""
    stagger: bool = False
    """Start the first episodes at random time steps, so that environments do not reset in sync."""

    def __post_init__(self) -> None:
        self.check("loop", "rollout_steps", "bonus_minibatch")


class OnPolicyAlgorithm(Policy, Stateful, Protocol):
    """An algorithm that learns from rollouts.

    Attributes:
        encoder: Encodes observations for the policy and for the bonus.
        actions: Converts actions for the environments.
        generator: Random generator for actions.
        device: Device of the networks.
    """

    encoder: Encoder
    actions: ActionAdapter
    generator: Generator
    device: torch.device

    @property
    def bonus_discount(self) -> float:
        """Discount factor of the return that includes the bonus."""

    def act(self, stored: ObsDict) -> tuple[Tensor, Tensor, Tensor]:
        """Samples actions ``(B, A)``.

        Returns:
            The actions, their log-probabilities ``(B,)``, and the bonus's features ``(B, D)``.
        """

    def learn(self, rollout: Rollout, rewards: Rewards, *, beta: float, progress: float) -> Metrics:
        """Learns from a rollout.

        Args:
            rollout: The newest steps of all environments.
            rewards: Their rewards, with the bonus.
            beta: Weight of the bonus in ``rewards``.
            progress: Fraction of the run so far, for schedules.
        """


class OnPolicyAgent(Learner):
    """An on-policy algorithm with its rollout and its bonus.

    Args:
        algorithm: The algorithm.
        bonus: The exploration bonus.
        scale: The weight and normalization of the bonus.
        settings: Settings of the rollouts.
        num_envs: Number of parallel environments.
        horizon: Length of the schedules (frames).
        tensors: Return actions as tensors, for environments that support them.
        shared: Of ``Learner``: ``frames_per_step``, ``seed``, ``clock``.
    """

    sections: ClassVar[Mapping[str, type[Any]]] = {"loop": LoopSettings}
    algorithm: OnPolicyAlgorithm

    def __init__(
        self,
        algorithm: OnPolicyAlgorithm,
        bonus: IntrinsicReward,
        scale: BonusScale,
        settings: LoopSettings,
        *,
        num_envs: int,
        horizon: int,
        tensors: bool = False,
        **shared: Any,
    ) -> None:
        super().__init__(algorithm, bonus, scale, **shared)
        self.settings, self.horizon, self.tensors = settings, horizon, tensors
        self.recent_episodes = max(100, num_envs * processes.size())
        self.stagger = self.generator if settings.stagger else None
        self.rollout = Rollout(
            settings.rollout_steps,
            num_envs,
            algorithm.encoder.layout,
            algorithm.actions.size,
            algorithm.encoder.feature_dim if self.view is None else len(self.view),
            device=algorithm.device,
        )
        self.windows = self._new_windows()
        # The first rollout initializes the observation statistics. Its steps are counted.
        self.warming_up = algorithm.encoder.normalizes
        self._history: ObsDict = {}  # observations before the rollout, for its windows
        self._filled = 0  # steps of the rollout so far
        self._scored: Scored | None = None
        # The last observation of a rollout is the first of the next one: it is encoded once.
        self._encoded: tuple[Any, ObsDict] | None = None

    @classmethod
    def build(cls, config: TrainConfig, env: VectorEnv[Any, Any, Any], clock: Clock) -> Self:
        """The agent with an empty rollout and a new bonus."""
        algorithm: OnPolicyAlgorithm = cls.make_algorithm(config, env)
        encoder, actions, frames = algorithm.encoder, algorithm.actions, frames_per_step(env)
        view = make_view(config, env, encoder.reader, encoder.feature_dim)
        bonus = make_bonus(
            config,
            encoder.feature_dim if view is None else len(view),
            actions.size,
            discrete_obs=encoder.reader.discrete,
            discrete=actions.discrete and config.loop.stride == 1,
        )
        return cls(
            algorithm,
            bonus,
            make_scale(config, algorithm.bonus_discount, frames),
            config.loop,
            view=view,
            num_envs=env.num_envs,
            frames_per_step=frames,
            horizon=config.horizon or config.steps,
            tensors=supports_tensors(env),
            seed=seed_for(config, "minibatches"),
            clock=clock,
        )

    def _new_windows(self) -> RolloutWindows:
        settings = self.settings
        return RolloutWindows(
            self.bonus.length,
            self.rollout.num_envs,
            ends_at=settings.ends_at,
            stride=settings.stride,
        )

    @property
    def can_checkpoint(self) -> bool:  # type: ignore[override] # a property here
        """Whether the rollout is empty."""
        return self._filled == 0

    def begin(self, observation: Any) -> None:
        """Discards earlier observations, so that no window contains steps before the reset."""
        self.windows, self._history = self._new_windows(), {}

    def act(self, observation: Any, step: int) -> Array:
        """Samples actions, and stores them with the observation."""
        with self.clock("acting"):
            rollout, encoder = self.rollout, self.algorithm.encoder
            if self._encoded is not None and self._encoded[0] is observation:
                stored = self._encoded[1]
                encoder.update_stats(stored)
            else:
                stored = encoder.read(observation, update_stats=True)
            self._encoded = None
            if self._filled == 0:
                rollout.clear()
            actions, log_probs, features = self.algorithm.act(stored)
            rollout.put_observation(self._filled, stored, self.seen(features))
            rollout.actions[self._filled], rollout.log_probs[self._filled] = actions, log_probs
            adapter = self.algorithm.actions
            return adapter.tensors(actions) if self.tensors else adapter(actions)

    def observe(self, step: Step) -> None:
        """Stores the rewards, and final observations of ended episodes."""
        with self.clock("acting"):
            rollout, encoder, t = self.rollout, self.algorithm.encoder, self._filled
            rollout.rewards[t] = torch.as_tensor(step.rewards)
            rollout.terminated[t] = torch.as_tensor(step.terminated)
            rollout.truncated[t] = torch.as_tensor(step.truncated)
            rollout.restarted[t] = torch.as_tensor(
                False if step.restarted is None else step.restarted
            )
            if step.ended.any():
                finals = encoder.read(final_observations(step))
                rollout.put_finals(finals, self._features(finals))
            self._filled += 1
            if self._filled == rollout.steps:
                stored = encoder.read(step.next_observation)
                rollout.put_observation(rollout.steps, stored, self._features(stored))
                self._encoded = step.next_observation, stored

    def update(self, step: int, *, last: bool = False) -> Metrics | None:
        """Learns from the rollout once it is full."""
        if self._filled < self.rollout.steps:
            return None
        self._filled = 0
        if self.warming_up:
            self.algorithm.encoder.sync()
            self.warming_up = False
            return None
        frames = self.rollout.rewards.numel() * self.frames_per_step * processes.size()
        beta = self.scale.beta
        with self.clock("windows"):
            index = self.build_windows()
        with self.clock("bonus"):
            raw, bonus_metrics = self.score(index)
            explored = ~self.rollout.restarted
            rewards = self.scale.combine(self.rollout.rewards, raw, scored=explored)
            self._scored = self._as_scored(index, raw)
        with self.clock("learning"):
            progress = (step - frames) / self.horizon
            metrics = self.algorithm.learn(self.rollout, rewards, beta=beta, progress=progress)
            self.algorithm.encoder.sync()
        self.updates += 1
        return {
            **bonus_metrics,
            "train/reward": float(processes.mean(rewards.extrinsic.mean())),
            **self.scale.metrics(raw[explored], rewards),
            "bonus/beta": beta,
            **metrics,
        }

    @torch.no_grad()
    def _features(self, stored: ObsDict) -> Tensor:
        return self.seen(self.algorithm.encoder.bonus_features(stored))

    def build_windows(self) -> WindowIndex:
        """Builds the windows of the rollout.

        Observations of the previous rollout are encoded again, because statistics and encoder have
        changed since.
        """
        rollout, depth = self.rollout, self.windows.reach
        after = self.settings.ends_at == "next"
        history = None
        if self._history and depth:
            flat = {part: values.flatten(0, 1) for part, values in self._history.items()}
            history = self._features(flat).view(rollout.num_envs, depth, -1)
        self._history = rollout.newest(depth, self._history)
        return self.windows.build(
            rollout.features[:-1],
            rollout.ended,
            last=rollout.features[-1] if after else None,
            finals=rollout.final_features() if after else None,
            actions=self.algorithm.actions.clipped(rollout.actions),  # rollouts store raw samples
            history=history,
        )

    def score(self, index: WindowIndex) -> tuple[Tensor, Metrics]:
        """The raw bonus ``(M, N)`` of every step; trains the bonus on a fraction of the windows.

        Windows that it is not trained on are scored first, with the weights before the update.
        Restarted episodes receive no bonus, and the bonus is not trained on them: otherwise the
        states that they start from would lose their novelty in normal episodes.
        """
        bonus, settings = self.bonus, self.settings
        order = torch.randperm(len(index), generator=self.generator).to(index.rows.device)
        if self.probe is None:
            self.probe = index[order[:PROBE_WINDOWS]]
        order = order[~self.rollout.restarted.flatten()[order]]
        # The same number in each process, whatever the number of restarted steps.
        most = min(processes.all_gather_object(len(order)))
        trained = min(most, max(1, round(settings.train_fraction * most)))
        raw = torch.zeros(len(index), device=index.rows.device)
        episodic = isinstance(bonus, EpisodicReward)
        if isinstance(bonus, EpisodicReward):  # in time order, before the bonus is trained
            for step in torch.arange(len(index), device=raw.device).view(self.rollout.steps, -1):
                raw[step] = bonus.follow(index[step], index.starts[step])
            raw[self.rollout.restarted.flatten()] = 0.0
        at_once = max(SCORED_WINDOWS, SCORED_FEATURES // self.probe.features[0].numel())
        for rows in [] if episodic else split_rows(order[trained:], at_once):
            raw[rows] = bonus.reward(index[rows])
        sums: dict[str, float] = {}
        own_share = -(-settings.bonus_minibatch // processes.size())
        minibatches = split_rows(order[:trained], own_share)
        for rows in minibatches:
            rewards, metrics = bonus.learn(index[rows])
            if not episodic:
                raw[rows] = rewards
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0.0) + value / len(minibatches)
        sums["bonus/probe"] = float(processes.mean(bonus.reward(self.probe).mean()))
        return raw.view(self.rollout.rewards.shape), sums

    def _as_scored(self, index: WindowIndex, raw: Tensor) -> Scored:
        return Scored(
            np.arange(self.rollout.steps),
            raw.cpu().numpy(),
            self.settings.ends_at == "next",
            index.greatest(raw, SHOWN_WINDOWS),
        )

    def scored(self) -> Scored | None:
        """The bonus of the last rollout's steps."""
        return self._scored

    def state_dict(self) -> dict[str, Any]:
        """The complete state, between two rollouts."""
        return super().state_dict() | {
            "windows": self.windows.state_dict(),
            "warming_up": self.warming_up,
            "history": self._history,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        super().load_state_dict(state)
        self.windows.load_state_dict(state["windows"])
        self.warming_up = bool(state["warming_up"])
        device = self.algorithm.device
        self._history = {part: values.to(device) for part, values in state["history"].items()}

    def debug_state(self) -> dict[str, Any]:
        """The rollout."""
        return {"rollout": self.rollout.arrays()}
