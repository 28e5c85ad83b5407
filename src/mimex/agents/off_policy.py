"""Off-policy agents: store transitions, sample batches, relabel them with the bonus, update."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Generator, Tensor

from mimex.agents.actions import ActionAdapter
from mimex.agents.encoders import ObsAdapter
from mimex.agents.factory import make_bonus, make_scale, make_view, seed_for
from mimex.agents.learner import Learner, WindowSettings
from mimex.bonus import bonus_class
from mimex.bonus.base import IntrinsicReward, NoBonus, require_no_episode
from mimex.bonus.scale import BonusScale
from mimex.contracts import (
    SHOWN_WINDOWS,
    Policy,
    Scored,
    Stateful,
    Step,
    episode_steps,
    final_observations,
    frames_per_step,
)
from mimex.data.replay import ReplayBuffer, ReplaySettings, Transitions
from mimex.nn.parallel import parallel_map, split_rows
from mimex.track.clock import Clock
from mimex.types import Metrics, Window

if TYPE_CHECKING:
    from mimex.config import TrainConfig

_log = logging.getLogger(__name__)

PROBE_WINDOWS = 32
"""Number of windows of the first update whose raw bonus is logged throughout the run."""

ENCODE_CHUNK = 16
"""Chunk size of encoding observations for the novelty map."""

IMAGES_EVERY = 8
"""With images, every n-th step is scored: encoding all would take a few percent of the time."""


@dataclass(frozen=True)
class OffPolicySettings(WindowSettings):
    """Settings of off-policy training."""

    report_every: int = 2000
    """Frames between rows of metrics."""

    def __post_init__(self) -> None:
        self.check("off_policy", "report_every")


class Means:
    """Means of metrics over updates."""

    def __init__(self) -> None:
        self._sums: Metrics = {}
        self._count = 0

    def add(self, metrics: Metrics) -> None:
        """Adds the metrics of one update."""
        self._count += 1
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def take(self) -> Metrics:
        """Returns the means since the last call; empty without updates."""
        means = {name: value / self._count for name, value in self._sums.items()}
        self._sums, self._count = {}, 0
        return means

    def state_dict(self) -> dict[str, Any]:
        """Sums and count."""
        return {"sums": dict(self._sums), "count": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        self._sums, self._count = dict(state["sums"]), int(state["count"])


class Encoded(NamedTuple):
    """The encoder's outputs for a batch, before the update."""

    blocks: list[Tensor]  # (b, F) each, features of the observations, with their graph
    windows: Tensor | None  # (B, L, D) the bonus's features of the windows


class OffPolicyAlgorithm(Policy, Stateful, Protocol):
    """An algorithm that learns from sampled transitions.

    Attributes:
        reader: Converts observations.
        actions: Converts actions for the environments.
        generator: Random generator for actions.
        settings: Hyperparameters, with ``batch``, ``n_step``, ``discount``, ``seed_steps`` and
            ``update_every``.
        device: Device of the networks.
        pixels: Whether observations have images.
        shape: Shape of an observation as ``read`` returns it.
        feature_dim: Number of features for the bonus.
        discrete_features: Whether these are one-hot codes of discrete observations.
    """

    reader: ObsAdapter
    actions: ActionAdapter
    generator: Generator
    settings: Any
    device: torch.device
    pixels: bool
    shape: tuple[int, ...]
    feature_dim: int
    discrete_features: bool

    def read(self, observation: Any) -> Tensor:
        """Converts the environments' observations to one tensor ``(B, *shape)``."""

    def act(self, observations: Tensor, step: int) -> Tensor:
        """Samples actions ``(B, A)`` at an agent step."""

    def features(self, observations: Tensor) -> Tensor:
        """The bonus's features of observations, ``(B, feature_dim)``."""

    def encode(self, batch: Transitions) -> Encoded:
        """Encodes a batch's observations and its windows."""

    def update(
        self, batch: Transitions, step: int, *, rewards: Tensor | None, encoded: Encoded | None
    ) -> Metrics:
        """One update at an agent step, with rewards in place of the batch's own."""


class OffPolicyAgent(Learner):
    """An off-policy algorithm with its replay buffer and its bonus.

    Args:
        algorithm: The algorithm.
        bonus: The exploration bonus.
        scale: The weight and normalization of the bonus.
        replay: The replay buffer.
        settings: Settings of off-policy training.
        save_replay: Whether checkpoints include the replay buffer.
        shared: Of ``Learner``: ``frames_per_step``, ``seed``, ``clock``.
    """

    sections: ClassVar[Mapping[str, type[Any]]] = {
        "replay": ReplaySettings,
        "off_policy": OffPolicySettings,
    }
    algorithm: OffPolicyAlgorithm
    recent_episodes = 10  # as in the evaluations of DrQ-v2

    def __init__(
        self,
        algorithm: OffPolicyAlgorithm,
        bonus: IntrinsicReward,
        scale: BonusScale,
        replay: ReplayBuffer,
        settings: OffPolicySettings,
        *,
        save_replay: bool = True,
        **shared: Any,
    ) -> None:
        require_no_episode(bonus, "a transition sampled from a replay buffer")
        super().__init__(algorithm, bonus, scale, **shared)
        self.replay, self.settings, self.save_replay = replay, settings, save_replay
        self.collected = 0  # transitions so far
        self.means = Means()
        self._actions: Tensor | None = None  # (N, A) of the current step
        self.score_every = IMAGES_EVERY if algorithm.pixels else 1
        self._round = 0  # vector steps so far
        self._rounds: list[int] = []  # steps to score since the last call of scored
        self._indices: list[list[int]] = []  # (n, N) of their observations in the buffer
        self._since = 0  # first step since the last call of scored

    @classmethod
    def build(cls, config: TrainConfig, env: VectorEnv[Any, Any, Any], clock: Clock) -> Self:
        """The agent with an empty replay buffer and a new bonus."""
        algorithm: OffPolicyAlgorithm = cls.make_algorithm(config, env)
        view = make_view(config, env, algorithm.reader, algorithm.feature_dim)
        bonus = make_bonus(
            config,
            algorithm.feature_dim if view is None else len(view),
            algorithm.actions.size,
            discrete_obs=algorithm.discrete_features,
        )
        return cls(
            algorithm,
            bonus,
            make_scale(config, algorithm.settings.discount),
            make_replay(config, env, algorithm, bonus),
            config.off_policy,
            view=view,
            save_replay=config.replay.save,
            frames_per_step=frames_per_step(env),
            seed=seed_for(config, "minibatches"),
            clock=clock,
        )

    @classmethod
    def check(cls, config: TrainConfig) -> None:
        """Raises ValueError for bonuses that need whole episodes, and for several processes."""
        if hasattr(bonus_class(config.bonus), "follow"):
            raise ValueError(
                f"--bonus is {config.bonus!r}, but it needs its episode's whole past, which "
                f"transitions sampled from {config.agent}'s replay buffer do not have: choose "
                "another bonus"
            )
        if config.processes > 1:
            raise ValueError(
                f"--processes is {config.processes}, but --agent {config.agent} has one replay "
                "buffer, in one process: use --processes 1 with --threads, or --agent ppo"
            )

    def begin(self, observation: Any) -> None:
        """Stores the first observations; earlier steps are no longer scored."""
        self._indices, self._rounds, self._since = [], [], self._round
        for env, first in enumerate(self._newest_frames(observation)):
            self.replay.start(first, env)

    def _newest_frames(self, observation: Any) -> NDArray[Any]:
        """Observations as the buffer stores them: the newest of stacked frames."""
        return (
            self.algorithm.read(observation).cpu().numpy()[:, -self.replay.observations.shape[1] :]
        )

    def act(self, observation: Any, step: int) -> NDArray[Any]:
        """Samples actions; ``step`` counts frames."""
        with self.clock("acting"):
            packed = self.algorithm.read(observation)
            self._actions = self.algorithm.act(packed, step // self.frames_per_step)
            if self._round % self.score_every == 0:
                self._rounds.append(self._round)
                self._indices.append([added - 1 for added in self.replay.added])
            return self.algorithm.actions(self._actions)

    def observe(self, step: Step) -> None:
        """Adds the transitions to the buffer."""
        assert self._actions is not None
        with self.clock("acting"):
            ended, actions = step.ended, self._actions.cpu().numpy()
            frames = self._newest_frames(step.next_observation)
            finals: dict[int, NDArray[Any]] = {}
            if ended.any():
                last = self._newest_frames(final_observations(step))
                finals = dict(zip(np.flatnonzero(ended).tolist(), last, strict=True))
            for row in range(self.replay.num_envs):
                self.replay.add(
                    finals.get(row, frames[row]),
                    actions[row],
                    float(step.rewards[row]),
                    bool(step.terminated[row]),
                    row,
                )
                if ended[row]:
                    self.replay.start(frames[row], row)
            self._round += 1

    def update(self, step: int, *, last: bool = False) -> Metrics | None:
        """Makes the updates that are due; returns metrics if a row is due."""
        settings, before = self.algorithm.settings, self.collected
        self.collected += self.replay.num_envs
        if self.collected >= settings.seed_steps:
            every = settings.update_every
            for _ in range(self.collected // every - before // every):
                self.means.add(self.learn(step))
        every, frames = self.settings.report_every, self.frames_per_step * self.replay.num_envs
        if step // every == (step - frames) // every and not last:
            return None
        metrics = self.means.take()
        if not isinstance(self.bonus, NoBonus):
            metrics["bonus/beta"] = self.scale.beta  # the current value, not a mean over updates
        if self.probe is not None:
            with self.clock("bonus"):
                metrics["bonus/probe"] = float(self.bonus.reward(self.probe).mean())
        return metrics | {"train/updates": float(self.updates)}

    def learn(self, step: int) -> Metrics:
        """Samples a batch, adds the bonus to its rewards, and learns from it."""
        algorithm, clock = self.algorithm, self.clock
        metrics, rewards = Metrics(), None
        with clock("sampling"):
            batch = self.replay.sample(algorithm.settings.batch, self.generator)
        with clock("learning"):
            encoded = algorithm.encode(batch)
        if encoded.windows is not None:
            with clock("bonus"):
                rewards, metrics = self.relabel(batch, encoded.windows, step)
        with clock("learning"):
            steps = step // self.frames_per_step
            metrics |= algorithm.update(batch, steps, rewards=rewards, encoded=encoded)
        self.updates += 1
        return metrics

    def relabel(self, batch: Transitions, features: Tensor, step: int) -> tuple[Tensor, Metrics]:
        """Adds the bonus to the rewards of a batch, and trains it on the batch.

        Each step of an n-step transition gets the bonus of the window at the transition's start.
        Beta thus weighs the bonus against the extrinsic reward of one step, for any n.

        Args:
            batch: Transitions sampled with windows.
            features: ``(B, L, D)`` encoded windows, without gradient.
            step: Frames so far, for beta's schedule.
        """
        assert batch.windows is not None
        window = Window(self.seen(features), batch.windows.valid, batch.windows.actions)
        if self.probe is None:
            self.probe = window[:PROBE_WINDOWS].clone()
        raw, metrics = self.bonus.learn(window, self.settings.train_fraction)
        self.scale.steps = step
        rewards = self.scale.combine(batch.rewards / batch.weights, raw)  # per step
        metrics |= self.scale.metrics(raw, rewards)
        return batch.rewards + rewards.intrinsic * batch.weights, metrics

    def scored(self) -> Scored | None:
        """The bonus of the steps since the last call; with images, of some of them."""
        indices = torch.tensor(self._indices)  # (n, N)
        rounds = np.array(self._rounds, np.int64) - self._since
        self._indices, self._rounds, self._since = [], [], self._round
        if len(rounds) == 0:
            return None
        if not self.replay.window:
            return Scored(rounds, np.zeros(indices.shape), False, None)
        envs = torch.arange(self.replay.num_envs).expand_as(indices)
        found = self.replay.windows_at(envs.flatten(), indices.flatten())
        rows = split_rows(torch.arange(len(found.others)), ENCODE_CHUNK)
        parts = parallel_map(lambda some: self.algorithm.features(found.others[some]), rows)
        features = torch.cat(parts)[found.positions]
        features[~found.valid] = 0.0
        window = Window(self.seen(features), found.valid, found.actions)
        scores = self.bonus.reward(window)
        full = window.valid.all(dim=1)
        most = scores.masked_fill(~full, -torch.inf).topk(min(SHOWN_WINDOWS, len(scores))).indices
        return Scored(rounds, scores.view(indices.shape).cpu().numpy(), False, window[most])

    def save(self) -> None:
        """Writes the buffer's observations to its files."""
        if self.save_replay:
            self.replay.save()

    def state_dict(self) -> dict[str, Any]:
        """The complete state, after ``save``."""
        return super().state_dict() | {
            "means": self.means.state_dict(),
            "collected": self.collected,
            "replay": self.replay.state_dict() if self.save_replay else None,
            "rounds": [self._round, self._since, *self._rounds],
            "numbers": [list(row) for row in self._indices],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``.

        If the buffer was not saved, or its files were removed, training continues with an empty
        one.
        """
        super().load_state_dict(state)
        self.means.load_state_dict(state["means"])
        self._round, self._since, *self._rounds = state["rounds"]
        self._indices = [list(row) for row in state["numbers"]]
        log = self.replay.log
        if state["replay"] is not None and log is not None and not log.empty:
            self.replay.load_state_dict(state["replay"])
            self.collected = int(state["collected"])
            return
        if state["replay"] is not None:
            _log.warning("The replay buffer's files are missing: continuing with an empty buffer.")

    @property
    def continues_episodes(self) -> bool:  # type: ignore[override] # a property here
        """Whether the buffer was restored."""
        return len(self.replay) > 0


def make_replay(
    config: TrainConfig,
    env: VectorEnv[Any, Any, Any],
    algorithm: OffPolicyAlgorithm,
    bonus: IntrinsicReward,
) -> ReplayBuffer:
    """An empty buffer, no larger than the run can fill."""
    stack = getattr(env.unwrapped, "stack", 1) if algorithm.pixels else 1
    frame = (algorithm.shape[0] // stack, *algorithm.shape[1:])
    steps = config.steps // frames_per_step(env)
    # An episode has one more observation than steps.
    shortest = min(config.family.shortest_episode, episode_steps(env))
    needed = steps + steps // shortest + 100 * config.envs
    window = 0 if isinstance(bonus, NoBonus) else bonus.length
    return ReplayBuffer(
        min(config.replay.capacity, needed),
        frame,
        algorithm.actions.size,
        pixels=algorithm.pixels,
        num_envs=config.envs,
        stack=stack,
        n_step=algorithm.settings.n_step,
        discount=algorithm.settings.discount,
        window=window,
        ends_at=config.off_policy.ends_at,
        stride=config.off_policy.stride,
        run=config.replay.run,
        folder=config.folder / "replay",
        memory_mapped=config.replay.memory_mapped,
        device=algorithm.device,
    )
