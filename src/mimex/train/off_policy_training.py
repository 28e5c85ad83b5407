"""An off-policy run between two steps: all of its parts, and all that a checkpoint holds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Generator

from mimex.agents.drqv2 import DrQv2
from mimex.bonus.base import IntrinsicReward, NoBonus
from mimex.bonus.scale import BonusScale
from mimex.data.replay import ReplayBuffer
from mimex.data.windows import EndsAt
from mimex.train.clock import Clock
from mimex.train.episodes import Episodes
from mimex.train.visits import Visits
from mimex.types import Metrics, Window

_log = logging.getLogger(__name__)

REMEMBER_EPISODES = 10
"""Training episodes that the metrics are about: as many as DrQ-v2 evaluates."""


@dataclass(frozen=True)
class OffPolicySettings:
    """Settings of the off-policy loop."""

    report_every: int = 2000
    """Frames from one row of metrics to the next."""
    train_fraction: float = 1.0
    """Share of a batch's windows that the bonus learns from; all are scored."""
    ends_at: EndsAt = "observation"
    """Whether the window of a transition ends at the "observation" on which the policy acted, as
    published, or at the "next" one, which the action led to."""
    stride: int = 1
    """Steps of the episode from one step of a window to the next; actions between are summed."""

    def __post_init__(self) -> None:
        for name in ("report_every", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"off_policy.{name} is {getattr(self, name)}, but must be at least 1."
                )
        if not 0 < self.train_fraction <= 1:
            raise ValueError(
                f"off_policy.train_fraction is {self.train_fraction}, but must be in (0, 1]."
            )


class Means:
    """Means of metrics over the updates since they were last taken."""

    def __init__(self) -> None:
        self._sums: Metrics = {}
        self._count = 0

    def add(self, metrics: Metrics) -> None:
        """Takes in one update's."""
        self._count += 1
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def take(self) -> Metrics:
        """The means, of which there are none without updates; starts anew."""
        means = {name: value / self._count for name, value in self._sums.items()}
        self._sums, self._count = {}, 0
        return means

    def state_dict(self) -> dict[str, Any]:
        """Sums and count."""
        return {"sums": dict(self._sums), "count": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self._sums, self._count = dict(state["sums"]), int(state["count"])


@dataclass
class OffPolicyTraining:
    """Everything an off-policy run consists of: all that a checkpoint holds.

    The replay buffer's observations are in its own files: ``replay.save()`` comes before a
    checkpoint.
    """

    settings: OffPolicySettings
    env: VectorEnv[Any, Any, Any]
    agent: DrQv2
    bonus: IntrinsicReward
    scale: BonusScale
    replay: ReplayBuffer
    seeds: Mapping[str, int]  # of "environment" and of the sampled "minibatches"
    save_replay: bool = True
    observation: NDArray[Any] | None = None  # (N, ...) what the agent acts on next
    step: int = 0  # frames, over all environments
    updates: int = 0
    collected: int = 0  # transitions that were ever added to the buffer
    probe: Window | None = None  # the first windows learned from, whose bonus is followed
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        simulation: Any = self.env.unwrapped
        self.frames_a_step: int = simulation.frames_a_step
        self.frames_a_round = self.frames_a_step * self.env.num_envs
        self.generator = Generator().manual_seed(self.seeds["minibatches"])
        self.episodes = Episodes(self.env.num_envs, remember=REMEMBER_EPISODES)
        self.stretch = Means()
        self.visits = Visits(self.replay, self.agent, self.bonus)
        self.pays = not isinstance(self.bonus, NoBonus)
        self._parts: dict[str, Any] = {
            "agent": self.agent,
            "bonus": self.bonus,
            "scale": self.scale,
            "episodes": self.episodes,
            "stretch": self.stretch,
            "visits": self.visits,
        }

    @property
    def agent_steps(self) -> int:
        """Steps of the agent, over all environments: what its schedules count."""
        return self.step // self.frames_a_step

    def newest_frame(self, observation: NDArray[Any]) -> NDArray[Any]:
        """What the buffer keeps of an observation: of stacked pictures the newest."""
        return observation[-self.replay.observations.shape[1] :]

    def states(self) -> NDArray[Any]:
        """The states ``(N, D)`` that the environments are in, whatever the agent sees of them."""
        simulation: Any = self.env.unwrapped
        found: Any = simulation.states() if self.agent.pixels else self.observation
        return np.asarray(found)

    def record_novelty(self, run: Path) -> None:
        """Writes the map and the film strips since the last record into the run folder."""
        self.visits.record(run, self.step, self.probe)

    def begin(self) -> None:
        """Begins the first episodes."""
        self.observation, _ = self.env.reset(seed=self.seeds["environment"])
        self._start_episodes()

    def _start_episodes(self) -> None:
        assert self.observation is not None
        for env, observation in enumerate(self.observation):
            self.replay.start(self.newest_frame(observation), env)

    def state_dict(self) -> dict[str, Any]:
        """All that ``load_state_dict`` needs to continue exactly here."""
        simulation: Any = self.env.unwrapped
        state = {name: part.state_dict() for name, part in self._parts.items()}
        return state | {
            "step": self.step,
            "updates": self.updates,
            "collected": self.collected,
            "replay": self.replay.state_dict() if self.save_replay else None,
            "environment": simulation.get_state(),
            "observation": self.observation,
            "generator": self.generator.get_state(),
            "probe": None if self.probe is None else vars(self.probe),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave.

        Where the buffer was not saved, or its files were removed, new episodes begin to fill a new
        one.
        """
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        self.step, self.updates = int(state["step"]), int(state["updates"])
        simulation: Any = self.env.unwrapped
        simulation.set_state(state["environment"])
        self.observation = np.asarray(state["observation"])
        self.generator.set_state(state["generator"])
        self.probe = None if state["probe"] is None else Window(**state["probe"])
        log = self.replay.log
        if state["replay"] is not None and log is not None and not log.empty:
            self.replay.load_state_dict(state["replay"])
            self.collected = int(state["collected"])
        else:
            if state["replay"] is not None:
                _log.warning("The replay buffer's files are gone: continuing with an empty one.")
            self.visits.forget()
            self.episodes.abandon()
            self.observation, _ = self.env.reset()
            self._start_episodes()
