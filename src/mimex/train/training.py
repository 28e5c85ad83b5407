"""A run between two updates: all of its parts, and all that a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from torch import Generator

from mimex.agents.ppo import PPO
from mimex.bonus.base import IntrinsicReward
from mimex.bonus.scale import BonusScale
from mimex.data.rollout import Rollout, Stored
from mimex.data.windows import EndsAt, RolloutWindows
from mimex.train.clock import Clock
from mimex.train.coverage import Coverage
from mimex.train.episodes import Episodes
from mimex.train.films import films
from mimex.train.novelty import NoveltyMap, write_record
from mimex.train.planes import HandPlanes
from mimex.types import Window


@dataclass(frozen=True)
class LoopSettings:
    """Settings of the on-policy loop."""

    rollout_steps: int = 32
    """Steps of every environment between two updates."""
    bonus_minibatch: int = 512
    """Windows in one optimizer step of the bonus."""
    bonus_passes: int = 1
    """Passes of the bonus over each rollout; rewards are those of the first."""
    train_fraction: float = 1.0
    """Share of a rollout's windows that the bonus learns from; all are scored."""
    stagger: bool = False
    """Begin the first episodes at random ages, so that environments do not all end at once and
    every rollout holds all phases of an episode."""
    ends_at: EndsAt = "observation"
    """Whether the window of a step ends at the "observation" on which the policy acted, as
    published, or at the "next" one, which the action led to."""
    stride: int = 1
    """Steps of the episode from one step of a window to the next; actions between are summed."""

    def __post_init__(self) -> None:
        for name in ("rollout_steps", "bonus_minibatch", "bonus_passes", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1.")
        if not 0 < self.train_fraction <= 1:
            raise ValueError(f"train_fraction is {self.train_fraction}, but must be in (0, 1].")


@dataclass
class Training:
    """Everything a run consists of between two updates: all that a checkpoint holds."""

    settings: LoopSettings
    env: VectorEnv[Any, Any, Any]
    agent: PPO
    bonus: IntrinsicReward
    scale: BonusScale
    seeds: Mapping[str, int]  # of "environment" and of the bonus's "minibatches"
    horizon: int  # environment steps over which schedules run
    observation: Any = None
    step: int = 0
    updates: int = 0
    probe: Window | None = None
    history: Stored = field(default_factory=dict)  # what the next windows reach back to
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        envs, encoder = self.env.num_envs, self.agent.encoder
        self.rollout = Rollout(
            self.settings.rollout_steps,
            envs,
            encoder.layout,
            self.agent.action_dim,
            encoder.feature_dim,
        )
        self.windows = RolloutWindows(
            self.bonus.length, envs, ends_at=self.settings.ends_at, stride=self.settings.stride
        )
        self.generator = Generator().manual_seed(self.seeds["minibatches"])
        self.episodes = Episodes(envs, remember=max(100, envs))
        self.coverage = Coverage()
        self.novelty = NoveltyMap(HandPlanes())
        self.hands = np.zeros((self.settings.rollout_steps + 1, envs, 3))  # (m), of each rollout
        self.newest: Window | None = None  # the most novel windows of the last rollout
        self._parts: dict[str, Any] = {
            "agent": self.agent,
            "bonus": self.bonus,
            "scale": self.scale,
            "windows": self.windows,
            "episodes": self.episodes,
            "coverage": self.coverage,
            "novelty": self.novelty,
        }

    def record_novelty(self, run: Path) -> None:
        """Writes the map and the film strips since the last record into the run folder."""
        windows = {"first": self.probe, "newest": self.newest}
        write_record(run, self.step, self.novelty, films(self.bonus, windows))

    def state_dict(self) -> dict[str, Any]:
        """All that ``load_state_dict`` needs to continue exactly here."""
        simulation: Any = self.env.unwrapped
        state = {name: part.state_dict() for name, part in self._parts.items()}
        return state | {
            "step": self.step,
            "updates": self.updates,
            "environment": simulation.get_state(),
            "observation": self.observation,
            "generator": self.generator.get_state(),
            "probe": None if self.probe is None else vars(self.probe),
            "history": self.history,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        self.step, self.updates = int(state["step"]), int(state["updates"])
        simulation: Any = self.env.unwrapped
        simulation.set_state(state["environment"])
        self.observation = state["observation"]
        self.generator.set_state(state["generator"])
        self.probe = None if state["probe"] is None else Window(**state["probe"])
        self.history = dict(state["history"])
