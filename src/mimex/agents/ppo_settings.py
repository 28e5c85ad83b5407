"""Settings of PPO."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class PPOSettings:
    """Settings of PPO; the defaults are the published ones (MVP, Xiao et al. 2022)."""

    lr: float = 1e-3
    """Learning rate of Adam at the start; it falls to 0 along half a cosine."""
    epochs: int = 10
    """Passes over each rollout."""
    minibatches: int = 4
    """Optimizer steps in each pass."""
    clip: float = 0.1
    """How far the probability of an action may move, as a share."""
    value_clip: float | None = 0.1
    """How far a value may move in one update, in units of reward; None for no limit."""
    value_weight: float = 1.0
    """Weight of the critic's loss."""
    entropy_weight: float = 0.0
    """Weight of the policy's entropy."""
    discount: float = 0.99
    """Gamma of the extrinsic return, and of the combined one."""
    trace: float = 0.95
    """Lambda of the advantage estimates."""
    grad_norm: float = 1.0
    """Longest gradient."""
    hidden: tuple[int, ...] = (256, 128, 64)
    """Widths of the hidden layers of actor and critic."""
    value_gain: float = math.sqrt(2)
    """Scale of the critic's last layer at the start: with a small one the first values are near 0,
    and the first advantages are made of rewards, not of the critic's random opinions."""
    initial_std: float = 1.0
    """Standard deviation of the policy at the start, in units of action."""
    two_heads: bool = False
    """Whether the bonus has a value head of its own, with its own discount and a return that runs
    on across episodes; otherwise both rewards are one stream, as published."""
    intrinsic_discount: float = 0.99
    """Gamma of the bonus's own return, where there are two heads."""

    def __post_init__(self) -> None:
        for name in (
            "lr",
            "epochs",
            "minibatches",
            "clip",
            "grad_norm",
            "initial_std",
            "value_gain",
        ):
            _require(name, getattr(self, name), getattr(self, name) > 0, "above 0")
        for name in ("discount", "trace", "intrinsic_discount"):
            _require(name, getattr(self, name), 0 <= getattr(self, name) <= 1, "in [0, 1]")
        _require(
            "value_clip",
            self.value_clip,
            self.value_clip is None or self.value_clip > 0,
            "above 0, or None",
        )


def _require(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"ppo.{name} is {value!r}, but must be {expected}.")
