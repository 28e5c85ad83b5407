"""Base class of all agents: an algorithm with its bonus, settings and presets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gymnasium.vector import VectorEnv
from torch import Generator, Tensor

from mimex.bonus.base import IntrinsicReward
from mimex.bonus.scale import BonusScale
from mimex.contracts import Agent
from mimex.data.checks import require_range
from mimex.data.windows import EndsAt
from mimex.nn.state import load_generator
from mimex.track.clock import Clock
from mimex.types import Window

if TYPE_CHECKING:
    from mimex.config import TrainConfig


@dataclass(frozen=True)
class WindowSettings:
    """Settings of the bonus's windows."""

    train_fraction: float = 1.0
    """Fraction of the windows that the bonus is trained on; all are scored."""
    ends_at: EndsAt = "observation"
    """Whether the window of a step ends at the "observation" the policy acted on, as published, or
    at the "next" observation."""
    stride: int = 1
    """Environment steps between consecutive steps of a window; actions in between are summed."""

    def check(self, section: str, *positive: str) -> None:
        """Raises an error for a value out of range; ``positive`` settings must be 1 or more."""
        require_range(section, self, "[1, inf)", "stride", *positive)
        require_range(section, self, "(0, 1]", "train_fraction")


class Learner(Agent, ABC):
    """An algorithm with its bonus: the part of ``contracts.Agent`` that all agents share.

    Derive your own agent from ``OnPolicyAgent`` or ``OffPolicyAgent``, which collect data and train
    the bonus, and define ``sections``, ``small`` and ``make_algorithm``.

    Attributes:
        sections: The agent's settings, by the name of their section on the command line.
        shown: The settings of each section that ``mimex train --help`` shows.
        recent_episodes: Number of training episodes that metrics are averaged over.
        score_every: Every n-th step is scored for the novelty map.
        stagger: Generator of random initial time steps; None if all episodes start at step 0.

    Args:
        algorithm: The algorithm, which selects actions and learns.
        bonus: The exploration bonus.
        scale: The weight and normalization of the bonus.
        view: Indices of the features that the bonus gets; None for all.
        frames_per_step: Frames per agent step (action repeat).
        seed: Seed for sampling training data.
        clock: Measures the time of each phase of training.
    """

    sections: ClassVar[Mapping[str, type[Any]]] = {}
    shown: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    warming_up = False
    can_checkpoint = True
    continues_episodes = True
    recent_episodes = 100
    score_every = 1
    stagger: Generator | None = None

    def __init__(
        self,
        algorithm: Any,
        bonus: IntrinsicReward,
        scale: BonusScale,
        *,
        view: Tensor | None = None,
        frames_per_step: int = 1,
        seed: int = 0,
        clock: Clock,
    ) -> None:
        self.view = view
        self.algorithm, self.bonus, self.scale, self.clock = algorithm, bonus, scale, clock
        self.frames_per_step = frames_per_step
        self.generator = Generator().manual_seed(seed)
        self.updates = 0
        self.probe: Window | None = None

    @classmethod
    @abstractmethod
    def small(cls, *, pixels: bool) -> dict[str, Any]:
        """Defaults of a run on small tasks, such as those of ``gym/``.

        Args:
            pixels: Whether the observations are images.

        Returns:
            Settings by name. For a section, a mapping changes some of its settings and an object
            replaces it.
        """

    @classmethod
    @abstractmethod
    def make_algorithm(cls, config: TrainConfig, env: VectorEnv[Any, Any, Any]) -> Any:
        """The algorithm with new weights, as ``mimex eval`` needs it."""

    @classmethod
    @abstractmethod
    def build(cls, config: TrainConfig, env: VectorEnv[Any, Any, Any], clock: Clock) -> Self:
        """The agent with its data and its bonus, ready to train."""

    @classmethod
    def check(cls, config: TrainConfig) -> None:
        """Raises ValueError for a setting that the agent does not support."""

    @classmethod
    def annealed(cls, config: TrainConfig) -> str | None:
        """The setting that anneals the learning rate to 0 at the horizon, or None."""
        return None

    def seen(self, features: Tensor) -> Tensor:
        """Selects the features ``(..., D)`` that the bonus gets."""
        return features if self.view is None else features[..., self.view]

    def save(self) -> None:
        """Writes the files that a checkpoint refers to; none by default."""

    def debug_state(self) -> dict[str, Any]:
        """Data of the last update, for debugging; the minibatch is attached to the error."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
        return {
            "algorithm": self.algorithm.state_dict(),
            "bonus": self.bonus.state_dict(),
            "scale": self.scale.state_dict(),
            "updates": self.updates,
            "generator": self.generator.get_state(),
            "probe": None if self.probe is None else vars(self.probe),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        self.algorithm.load_state_dict(state["algorithm"])
        self.bonus.load_state_dict(state["bonus"])
        self.scale.load_state_dict(state["scale"])
        self.updates = int(state["updates"])
        load_generator(self.generator, state["generator"])
        probe = state["probe"]
        self.probe = None if probe is None else Window(**probe).to(self.algorithm.device)
