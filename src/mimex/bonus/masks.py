"""All mask distributions: those of MIMEx (``masking.py``) and those of other methods."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from mimex.bonus.masking import (
    FeatureMask,
    MaskDistribution,
    TimeMask,
    check_ratio,
    masked_count,
    masked_counts,
    uniform,
)

__all__ = [
    "AllMask",
    "FeatureMask",
    "LastMask",
    "MaskDistribution",
    "NextStepMask",
    "SpanMask",
    "TimeMask",
]


def _randint(high: Tensor, generator: Generator) -> Tensor:
    """Uniform integers below ``high``, an individual bound for each; 0 where that is 0."""
    return torch.minimum((uniform(high.shape, generator) * high).long(), high - 1).clamp(min=0)


def _rank(valid: Tensor) -> Tensor:
    """The index of each valid step among the valid steps of its window."""
    return valid.cumsum(1) - 1


@dataclass(frozen=True)
class LastMask(MaskDistribution):
    """Masks the newest step, which is predicted from those before it (as in ICM)."""

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        size = valid.sum(1, keepdim=True)
        return valid & (_rank(valid) == size - 1) & (size > 1)

    def effective_ratio(self, length: int) -> float:
        return 1 / length


@dataclass(frozen=True)
class NextStepMask(MaskDistribution):
    """Masks everything from a random step on, and scores that step: next-step prediction."""

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        size = valid.sum(1, keepdim=True)
        first = 1 + _randint(size - 1, generator)
        return valid & (_rank(valid) >= first) & (size > 1)

    def targets(self, masked: Tensor) -> Tensor:
        return masked & (masked.cumsum(-1) == 1)

    def effective_ratio(self, length: int) -> float:
        return 0.5  # the mean of (L - first) / L over first = 1 .. L - 1


@dataclass(frozen=True)
class SpanMask(MaskDistribution):
    """Masks one span of consecutive steps, a fraction of the window, at a random position."""

    ratio: float = 0.5

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        count = masked_counts(valid, self.ratio)
        first = _randint(valid.sum(1, keepdim=True) - count + 1, generator)
        return valid & (_rank(valid) >= first) & (_rank(valid) < first + count)

    def effective_ratio(self, length: int) -> float:
        return masked_count(length, self.ratio) / length


@dataclass(frozen=True)
class AllMask(MaskDistribution):
    """Masks everything: for predictors that see another input than the masked one (RND)."""

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        return valid.clone()

    def effective_ratio(self, length: int) -> float:
        return 1.0

    def require(self, length: int) -> None:
        """Any length works."""
