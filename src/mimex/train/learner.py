"""What learning from rollouts and from a replay buffer have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor

from mimex.bonus.base import IntrinsicReward
from mimex.bonus.scale import BonusScale
from mimex.data.windows import EndsAt
from mimex.nn.generators import load_generator
from mimex.train.loop import Clock
from mimex.types import Window


@dataclass(frozen=True)
class WindowSettings:
    """Settings of the windows that a bonus sees."""

    train_fraction: float = 1.0
    """Share of the windows that the bonus learns from; all are scored."""
    ends_at: EndsAt = "observation"
    """Whether the window of a step ends at the "observation" on which the policy acted, as
    published, or at the "next" one, which the action led to."""
    stride: int = 1
    """Steps of the episode from one step of a window to the next; actions between are summed."""

    def require_positive(self, section: str, *names: str) -> None:
        """Raises an error for numbers that make no windows, or others that are below 1."""
        for name in (*names, "stride"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{section}.{name} is {value}, but must be at least 1.")
        if not 0 < self.train_fraction <= 1:
            raise ValueError(
                f"{section}.train_fraction is {self.train_fraction}, but must be in (0, 1]."
            )


class Learner:
    """An algorithm with its bonus, as ``contracts.Agent`` asks; what it learns from is added.

    Args:
        algorithm: What acts and learns.
        bonus: What scores windows.
        scale: How much it is paid.
        view: Indices of the features that the bonus sees; None for all.
        frames_per_step: Frames that a step counts as.
        seed: Of what is drawn to learn from.
        clock: Where time is counted.
    """

    warming_up = False
    resting = True
    continues_episodes = True

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

    def seen(self, features: Tensor) -> Tensor:
        """Those of the features ``(..., D)`` that the bonus sees."""
        return features if self.view is None else features[..., self.view]

    def save(self) -> None:
        """Writes what a checkpoint counts on but does not hold: nothing."""

    def evidence(self) -> dict[str, Any]:
        """What an update learned from, beside the minibatch, which is the error's."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """All that ``load_state_dict`` needs to continue exactly here."""
        return {
            "algorithm": self.algorithm.state_dict(),
            "bonus": self.bonus.state_dict(),
            "scale": self.scale.state_dict(),
            "updates": self.updates,
            "generator": self.generator.get_state(),
            "probe": None if self.probe is None else vars(self.probe),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self.algorithm.load_state_dict(state["algorithm"])
        self.bonus.load_state_dict(state["bonus"])
        self.scale.load_state_dict(state["scale"])
        self.updates = int(state["updates"])
        load_generator(self.generator, state["generator"])
        probe = state["probe"]
        self.probe = None if probe is None else Window(**probe).to(self.algorithm.device)
