"""The masks of MIMEx: time, feature and tube masks. ``masks.py`` has those of other methods."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Generator, Tensor


class MaskDistribution(ABC):
    """A distribution over masks of windows; True means masked.

    Padding is never masked. A window with fewer than two valid steps is too short for most
    distributions: nothing of it is masked, and its reward is 0.
    """

    per_feature = False  # masks are (B, L, D), single features, instead of (B, L), whole steps

    @abstractmethod
    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        """Draws one mask per window: ``valid (B, L)`` gives ``(B, L)``, or ``(B, L, D)``."""

    def draw(self, valid: Tensor, masks: int, generator: Generator) -> Tensor:
        """Draws K masks per window: ``(K, B, L)``, or ``(K, B, L, D)``."""
        return torch.stack([self.sample(valid, generator) for _ in range(masks)])

    def targets(self, masked: Tensor) -> Tensor:
        """The masked entries that are scored, with the shape of ``masked``: here all of them."""
        return masked

    @abstractmethod
    def effective_ratio(self, length: int) -> float:
        """The mean masked fraction of a full window of this length."""

    def require(self, length: int) -> None:
        """Raises ValueError for a window length that leaves nothing masked or visible."""
        if length < 2:
            raise ValueError(
                f"length={length} leaves {type(self).__name__} nothing to predict from: one step "
                "must be masked and one visible. Use length >= 2, or AllMask()."
            )


def masked_count(size: int, ratio: float) -> int:
    """How many of ``size`` entries a ratio masks: at least one masked and one visible."""
    if size < 2:
        return 0
    kept = math.floor(size * (1 - ratio) + 1e-6)  # 5 * (1 - 0.8) is 0.9999999999999998
    return size - min(max(kept, 1), size - 1)


def check_ratio(ratio: float) -> None:
    """Raises ValueError for a ratio outside [0, 1)."""
    if not 0 <= ratio < 1:
        raise ValueError(
            f"ratio={ratio} is outside [0, 1) (the mask_ratio of a bonus). The paper uses 0.7 for "
            "time and 0.8 to 0.95 for feature masks; AllMask() masks everything."
        )


def masked_counts(valid: Tensor, ratio: float, per_step: int = 1) -> Tensor:
    """``masked_count`` of each window ``(B, 1)`` with ``per_step`` entries in each valid step."""
    counts = [masked_count(n * per_step, ratio) for n in range(valid.shape[1] + 1)]
    return torch.tensor(counts, device=valid.device)[valid.sum(1, keepdim=True)]


def uniform(shape: torch.Size, generator: Generator) -> Tensor:
    """Uniform random numbers on the device of the generator."""
    return torch.rand(shape, generator=generator, dtype=torch.float32, device=generator.device)


def _mask_lowest(scores: Tensor, counts: Tensor, valid: Tensor) -> Tensor:
    """Masks the ``counts`` valid entries with the lowest scores of each row: ``(B, N)``."""
    kept = valid.sum(1, keepdim=True) - counts  # visible, which are fewer
    highest = scores.masked_fill(~valid, -1.0).topk(int(kept.max()), 1).indices
    visible = torch.arange(highest.shape[1], device=scores.device) < kept
    return valid & ~torch.zeros_like(valid).scatter_(1, highest, visible)


@dataclass(frozen=True)
class TimeMask(MaskDistribution):
    """Masks a random fraction of the time steps (the paper: 0.7)."""

    ratio: float = 0.7

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        counts = masked_counts(valid, self.ratio)
        return _mask_lowest(uniform(valid.shape, generator), counts, valid)

    def effective_ratio(self, length: int) -> float:
        return masked_count(length, self.ratio) / length


@dataclass(frozen=True)
class FeatureMask(MaskDistribution):
    """Masks a random fraction of the L x D entries of a window, each drawn independently.

    With ``tube`` a fraction of the features is masked instead, each in all steps of the window.
    """

    ratio: float = 0.8
    feature_dim: int | None = None  # filled in by the bonus
    tube: bool = False
    per_feature = True

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        if self.feature_dim is None:
            raise ValueError("FeatureMask needs feature_dim to sample: FeatureMask(ratio, D).")
        batch, length, width = *valid.shape, self.feature_dim
        if self.tube:  # (B, D), then the same features in every step
            every = valid.new_ones(batch, width)
            counts = valid.new_full((1, 1), masked_count(width, self.ratio), dtype=torch.long)
            features = _mask_lowest(uniform(every.shape, generator), counts, every)
            return features.unsqueeze(1) & valid.unsqueeze(2)
        entries = valid.repeat_interleave(width, 1)  # (B, L * D)
        counts = masked_counts(valid, self.ratio, width)
        masked = _mask_lowest(uniform(entries.shape, generator), counts, entries)
        return masked.view(batch, length, width)

    def _entries(self, length: int) -> int:
        return (1 if self.tube else length) * (self.feature_dim or 1)

    def effective_ratio(self, length: int) -> float:
        return masked_count(self._entries(length), self.ratio) / self._entries(length)

    def require(self, length: int) -> None:
        if self.feature_dim is not None and self._entries(length) < 2:
            raise ValueError(
                f"feature_dim={self.feature_dim} with length={length} leaves a single entry to "
                f"draw from (tube={self.tube}), and none visible: use more features, or AllMask()."
            )
