"""Settings of PPO."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from torch import nn

Activation = Literal["selu", "elu", "tanh", "relu"]
LearningRateSchedule = Literal["adaptive", "cosine", "constant"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "selu": partial(nn.SELU, inplace=True),
    "elu": partial(nn.ELU, inplace=True),
    "tanh": nn.Tanh,
    "relu": partial(nn.ReLU, inplace=True),
}


@dataclass(frozen=True)
class PPOSettings:
    """Settings of PPO; the defaults are the published ones (MVP, Xiao et al. 2022)."""

    lr: float = 1e-3
    """Learning rate of Adam at the start, and at most; of the critic always, where the schedule is
    adaptive."""
    lr_schedule: LearningRateSchedule = "cosine"
    """How the rate goes on: "cosine" falls to 0 over the run; "adaptive" follows the policy: after
    an update it rises where the last pass was less than half of target-kl from the policy that
    acted, and falls where it was more than twice as far."""
    target_kl: float = 0.016
    """Kullback-Leibler divergence that an adaptive rate aims at."""
    adam_eps: float = 1e-8
    """Epsilon of Adam: gradients well below it make small steps. A policy that is sure of its
    discrete actions has tiny ones, and with a small epsilon noise alone moves it at the full rate.
    """
    epochs: int = 10
    """Passes over each rollout."""
    minibatches: int = 4
    """Optimizer steps in each pass."""
    shuffle: bool = False
    """Whether minibatches are drawn at random; otherwise they are pieces of the rollout in time's
    order, as published."""
    clip: float = 0.1
    """How far the probability of an action may move, as a share."""
    value_clip: float | None = None
    """How far a value may move in one update, in the critic's units; None for no limit."""
    value_coef: float = 2.0
    """Weight of the critic's loss."""
    entropy_coef: float = 0.0
    """Weight of the policy's entropy."""
    discount: float = 0.99
    """Gamma of the extrinsic return, and of the combined one."""
    gae_lambda: float = 0.95
    """Lambda of the advantage estimates."""
    normalise_values: bool = False
    """Whether the critic learns returns less their mean and divided by their deviation, which
    follow the returns (PopArt, van Hasselt et al. 2016): then the size of rewards does not matter.
    """
    grad_norm: float = 1.0
    """Longest gradient."""
    separate_clips: bool = False
    """Whether that limit is one each for actor, critic and encoder, so that a critic that is far
    off does not stop the actor; otherwise one for all, as published."""
    hidden: tuple[int, ...] = (256, 128, 64)
    """Widths of the hidden layers of actor and critic."""
    activation: Activation = "selu"
    """Between the layers."""
    value_gain: float = 1.0
    """Scale of the critic's last layer at the start: with a small one the first values are near 0,
    and the first advantages are made of rewards, not of the critic's random opinions."""
    normalise_observations: bool = False
    """Whether the numbers of an observation get the mean 0 and the deviation 1, by statistics of
    all that was seen; the first rollout is then played for these alone."""
    observation_clip: float = 5.0
    """Numbers of an observation are cut off here; of normalised ones, in standard deviations."""
    initial_std: float = 1.0
    """Standard deviation of the policy at the start, in units of action."""
    min_std: float = 0.0
    """Below this the policy's standard deviation does not fall."""
    two_heads: bool = False
    """Whether the bonus has a value head of its own, with its own discount and a return that runs
    on across episodes; otherwise both rewards are one stream, as published. Each stream then counts
    in the unit of its own returns; in rollouts in which the task only costs, both as they are."""
    intrinsic_discount: float = 0.99
    """Gamma of the bonus's own return, where there are two heads."""

    def __post_init__(self) -> None:
        for name in (
            "lr",
            "adam_eps",
            "target_kl",
            "clip",
            "grad_norm",
            "initial_std",
            "value_gain",
            "observation_clip",
        ):
            value = getattr(self, name)
            _require(name, value, 0 < value < math.inf, "above 0 and finite")
        for name in ("epochs", "minibatches"):
            _require(name, getattr(self, name), getattr(self, name) >= 1, "1 or more")
        for name in ("value_coef", "entropy_coef", "min_std"):
            value = getattr(self, name)
            _require(name, value, 0 <= value < math.inf, "0 or more and finite")
        for name in ("discount", "gae_lambda"):
            _require(name, getattr(self, name), 0 <= getattr(self, name) <= 1, "in [0, 1]")
        below = self.intrinsic_discount  # novelty never ends, and its sum must
        _require("intrinsic_discount", below, 0 <= below < 1, "in [0, 1)")
        positive = self.value_clip is None or self.value_clip > 0
        _require("value_clip", self.value_clip, positive, "above 0, or None")
        _require("hidden", self.hidden, all(width >= 1 for width in self.hidden), "1 or more each")
        for name, choices in (
            ("lr_schedule", get_args(LearningRateSchedule)),
            ("activation", get_args(Activation)),
        ):
            known = getattr(self, name) in choices
            _require(name, getattr(self, name), known, f"one of {', '.join(choices)}")


def _require(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"ppo.{name} is {value!r}, but must be {expected}.")
