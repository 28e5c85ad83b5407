"""All mask distributions: those of MIMEx (``masking.py``) and those of other methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    "LeaveOneOutMask",
    "MaskDistribution",
    "MixtureMask",
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
class LeaveOneOutMask(MaskDistribution):
    """Masks each step once, which needs masks=L: the full pseudo-log-likelihood of a window."""

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        size = valid.sum(1, keepdim=True)
        return valid & (_rank(valid) == _randint(size, generator)) & (size > 1)

    def draw(self, valid: Tensor, masks: int, generator: Generator) -> Tensor:
        self.require(valid.shape[1], masks)
        each = torch.eye(valid.shape[1], dtype=torch.bool, device=valid.device).unsqueeze(1)
        return each & valid & (valid.sum(1, keepdim=True) > 1)

    def effective_ratio(self, length: int) -> float:
        return 1 / length

    def require(self, length: int, masks: int) -> None:
        super().require(length, masks)
        if masks != length:
            raise ValueError(
                f"masks={masks} does not fit LeaveOneOutMask, which masks each of the "
                f"length={length} steps once. Use masks={length}."
            )


@dataclass(frozen=True)
class AllMask(MaskDistribution):
    """Masks everything: for predictors that see another input than the masked one (RND)."""

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        return valid.clone()

    def effective_ratio(self, length: int) -> float:
        return 1.0

    def require(self, length: int, masks: int) -> None:
        """Any length works."""


@dataclass(frozen=True)
class MixtureMask(MaskDistribution):
    """Draws one of several distributions for each window, with the given weights."""

    parts: tuple[MaskDistribution, ...]
    weights: tuple[float, ...]

    def __init__(self, parts: Sequence[MaskDistribution], weights: Sequence[float] | None = None):
        weights = tuple(weights) if weights is not None else (1.0,) * len(parts)
        if not parts or len(parts) != len(weights):
            raise ValueError(
                f"got {len(parts)} parts and {len(weights)} weights; expected one positive weight "
                "for each of at least one part."
            )
        if not all(math.isfinite(w) and w > 0 for w in weights):
            raise ValueError(f"weights={weights}: each must be positive and finite.")
        for part in parts:
            if isinstance(part, FeatureMask | NextStepMask | LeaveOneOutMask | MixtureMask):
                raise ValueError(
                    f"{type(part).__name__} cannot be part of a mixture: parts must mask whole "
                    "steps, one mask per window, and score everything they mask."
                )
        object.__setattr__(self, "parts", tuple(parts))
        object.__setattr__(self, "weights", tuple(w / sum(weights) for w in weights))

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        weights = torch.tensor(self.weights, dtype=torch.float32, device=valid.device)
        choice = torch.multinomial(weights, len(valid), replacement=True, generator=generator)
        masks = torch.stack([part.sample(valid, generator) for part in self.parts])  # (P, B, L)
        return masks[choice, torch.arange(len(valid), device=valid.device)]

    def effective_ratio(self, length: int) -> float:
        return sum(
            weight * part.effective_ratio(length)
            for part, weight in zip(self.parts, self.weights, strict=True)
        )

    def require(self, length: int, masks: int) -> None:
        for part in self.parts:
            part.require(length, masks)
