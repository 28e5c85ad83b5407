"""Settings of DrQ-v2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FeatureKind = Literal["trunk", "encoder"]


@dataclass(frozen=True)
class DrQv2Settings:
    """Settings of DrQ-v2; the defaults are the published ones."""

    lr: float = 1e-4
    """Learning rate of Adam, of encoder, actor and critic."""
    batch: int = 256
    """Transitions of an update."""
    n_step: int = 3
    """Steps of reward before a target bootstraps."""
    discount: float = 0.99
    """Gamma."""
    tau: float = 0.01
    """Share of the critic that its slow copy takes over at each update."""
    update_every: int = 2
    """Agent steps from one update to the next."""
    seed_steps: int = 2000
    """Agent steps before the first update (published: 4,000 frames at two frames a step)."""
    random_steps: int = 2000
    """Agent steps at the start whose actions are uniformly random."""
    std_start: float = 1.0
    """Standard deviation of the exploration noise at the start, in units of action."""
    std_end: float = 0.1
    """The same at the end of its schedule."""
    std_steps: int = 100_000
    """Agent steps over which it falls (published: 100,000 for easy tasks, 500,000 for medium ones,
    2,000,000 for hard ones)."""
    std_clip: float = 0.3
    """Noise is cut off here when learning, in units of action."""
    shift: int = 4
    """Largest random shift of frames (pixels)."""
    filters: int = 32
    """Filters of each of the encoder's four convolutions."""
    trunk: int = 50
    """Numbers that actor and critic make of the encoder's features."""
    hidden: int = 1024
    """Width of the two hidden layers of actor and critic."""
    features: FeatureKind = "trunk"
    """What the bonus sees: the critic's "trunk" or the "encoder" before it (39,200 numbers)."""

    def __post_init__(self) -> None:
        for name in ("lr", "batch", "n_step", "update_every", "std_start", "std_steps", "std_clip"):
            _require(name, getattr(self, name), getattr(self, name) > 0, "above 0")
        for name in ("filters", "trunk", "hidden"):
            _require(name, getattr(self, name), getattr(self, name) > 0, "above 0")
        for name in ("seed_steps", "random_steps", "std_end", "shift"):
            _require(name, getattr(self, name), getattr(self, name) >= 0, "at least 0")
        _require("tau", self.tau, 0 <= self.tau <= 1, "in [0, 1]")
        _require("discount", self.discount, 0 <= self.discount < 1, "in [0, 1)")

    def std(self, step: int) -> float:
        """The standard deviation of the noise at an agent step."""
        done = min(step / self.std_steps, 1.0)
        return (1 - done) * self.std_start + done * self.std_end


def _require(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"drqv2.{name} is {value!r}, but must be {expected}.")


PUBLISHED = DrQv2Settings()
"""DrQ-v2 as published."""

MIMEX = DrQv2Settings(batch=1024, n_step=1)
"""The variant of the MIMEx release."""
