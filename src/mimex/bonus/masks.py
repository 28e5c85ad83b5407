"""Mask distributions: which part of a window is hidden, and which hidden part is scored.

A method of exploration by prediction is, to a large part, its mask: RND hides everything, ICM the
last step, a pseudo-count some numbers of one state, MIMEx a random share of the steps.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

FLOAT_ERROR = 1e-6
"""Slack of the floor in ``kept = floor(L * (1 - ratio))``: 5 * (1 - 0.8) is 0.9999999999999998."""


class MaskDistribution(ABC):
    """A distribution over what to hide of a window; True means hidden.

    Steps that are not valid are padding: they are never hidden. A window too short for the
    distribution (fewer than two valid steps, where one must stay visible) hides nothing, and a
    window that hides nothing scores zero.
    """

    @abstractmethod
    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        """Draws one mask a window: ``valid (B, L)`` gives ``(B, L)``, or ``(B, L, D)``."""

    def draw(self, valid: Tensor, masks: int, generator: Generator) -> Tensor:
        """Draws several masks a window: ``(masks, B, L)``, or ``(masks, B, L, D)``."""
        return torch.stack([self.sample(valid, generator) for _ in range(masks)])

    def targets(self, hidden: Tensor) -> Tensor:
        """The hidden entries that are scored, of the shape of ``hidden``: here all of them."""
        return hidden

    @abstractmethod
    def effective_ratio(self, length: int) -> float:
        """The mean share of a full window of this length that is really hidden."""

    def require(self, length: int, masks: int) -> None:
        """Refuses lengths and numbers of masks that this distribution cannot serve."""
        if length < 2:
            raise ValueError(
                f"length={length} leaves {type(self).__name__} nothing to predict from: one step "
                "must be hidden and one visible. Use length >= 2, or AllMask()."
            )


def hidden_count(length: int, ratio: float) -> int:
    """How many of ``length`` entries a ratio hides: exact, at least one hidden, one visible."""
    if length < 2:
        return 0
    kept = math.floor(length * (1 - ratio) + FLOAT_ERROR)
    return length - min(max(kept, 1), length - 1)


def _check_ratio(ratio: float, remedy: str) -> None:
    if not 0 <= ratio < 1:
        raise ValueError(
            f"ratio={ratio} is outside [0, 1) (a bonus's mask_ratio): a ratio of 1 would leave "
            f"nothing visible. {remedy}"
        )


def _counts(sizes: Tensor, ratio: float, largest: int) -> Tensor:
    """``hidden_count`` of each number of valid entries."""
    table = torch.tensor([hidden_count(n, ratio) for n in range(largest + 1)], device=sizes.device)
    return table[sizes]


def _uniform(valid: Tensor, generator: Generator) -> Tensor:
    """Uniform numbers of the shape of ``valid``, on its device."""
    return torch.rand(valid.shape, generator=generator, dtype=torch.float32, device=valid.device)


def _uniform_below(size: Tensor, generator: Generator) -> Tensor:
    """Uniform integers from 0 to ``size - 1``, each of its own size; 0 where there are none."""
    uniform = _uniform(size, generator)
    return torch.minimum((uniform * size).long(), size - 1).clamp(min=0)


def _smallest(scores: Tensor, count: int) -> Tensor:
    """Which entries are the ``count`` smallest of their row; as many in every row, whatever ties.

    On a CPU by a threshold, which NumPy finds five times as fast as ``topk`` does; ties are its.
    """
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    rows = torch.arange(len(scores), device=scores.device)
    if count and scores.device.type == "cpu":
        least = np.partition(scores.numpy(), count - 1, axis=1)[:, count - 1 : count]
        chosen = scores <= torch.from_numpy(least)
        rows = (chosen.sum(1) != count).nonzero().squeeze(1)
    places = scores[rows].topk(count, dim=1, largest=False, sorted=False).indices
    chosen[rows] = torch.zeros_like(chosen[rows]).scatter_(1, places, True)
    return chosen


def _order(valid: Tensor) -> Tensor:
    """The rank of each valid step within its window, from 0 (meaningless where not valid)."""
    return valid.cumsum(1) - 1


@dataclass(frozen=True)
class TimeMask(MaskDistribution):
    """Hides a uniformly random ``ratio`` of the steps, whole (the paper: 0.7)."""

    ratio: float = 0.7

    def __post_init__(self) -> None:
        _check_ratio(self.ratio, "The paper uses 0.7; AllMask() hides everything on purpose.")

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        length = valid.shape[1]
        # Padding gets the largest numbers, so the smallest-n choice below never takes it.
        order = _uniform(valid, generator).masked_fill(~valid, 2.0).argsort(1)
        counts = _counts(valid.sum(1), self.ratio, length)
        chosen = torch.arange(length, device=valid.device) < counts.unsqueeze(1)
        return torch.zeros_like(valid).scatter_(1, order, chosen)

    def effective_ratio(self, length: int) -> float:
        return hidden_count(length, self.ratio) / length


@dataclass(frozen=True)
class FeatureMask(MaskDistribution):
    """Hides a uniformly random ``ratio`` of the entries of a window, L steps of D features.

    By default every entry ``(step, feature)`` is drawn independently: a feature that is hidden at
    one step is mostly visible at another (with a ratio of 0.8 and five steps in 59 % of cases).
    With ``tube`` a ``ratio`` of the D features is drawn, each of them hidden in all steps of the
    window. ``feature_dim`` may be left out where a bonus is given the mask: the bonus fills it in.
    """

    ratio: float = 0.8
    feature_dim: int | None = None
    tube: bool = False

    def __post_init__(self) -> None:
        _check_ratio(self.ratio, "The paper studies 0.8, 0.9 and 0.95.")

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        if self.feature_dim is None:
            raise ValueError("FeatureMask needs feature_dim to sample: FeatureMask(ratio, D).")
        batch, length = valid.shape
        if self.tube:
            features = valid.new_ones(batch, self.feature_dim)
            count = hidden_count(self.feature_dim, self.ratio)
            return _smallest(_uniform(features, generator), count).unsqueeze(1) & valid.unsqueeze(2)
        entries = valid.unsqueeze(2).expand(batch, length, self.feature_dim).reshape(batch, -1)
        scores, sizes = _uniform(entries, generator), valid.sum(1)
        if bool((sizes == length).all()):
            hidden = _smallest(scores, hidden_count(length * self.feature_dim, self.ratio))
        else:
            scores, hidden = scores.masked_fill(~entries, 2.0), torch.zeros_like(entries)
            for size in sorted(set(sizes.tolist())):  # at most L + 1 of them
                rows = (sizes == size).nonzero().squeeze(1)
                count = hidden_count(size * self.feature_dim, self.ratio)
                hidden[rows] = _smallest(scores[rows], count)
        return hidden.reshape(batch, length, self.feature_dim)

    def effective_ratio(self, length: int) -> float:
        size = (1 if self.tube else length) * (self.feature_dim or 1)
        return hidden_count(size, self.ratio) / size

    def require(self, length: int, masks: int) -> None:
        if self.feature_dim is None:
            return
        if self.tube and self.feature_dim < 2:
            raise ValueError(
                f"feature_dim={self.feature_dim} leaves a tube mask no visible feature: use 2 or "
                "more features, or tube=False (mask_type='feature')."
            )
        if length * self.feature_dim < 2:
            raise ValueError(
                f"length={length} with feature_dim={self.feature_dim} is a single number: none "
                "would stay visible. Use a longer window or AllMask()."
            )


@dataclass(frozen=True)
class LastMask(MaskDistribution):
    """Hides the newest step only: it is predicted from all before it (with two steps: ICM)."""

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        size = valid.sum(1, keepdim=True)
        return valid & (_order(valid) == size - 1) & (size > 1)

    def effective_ratio(self, length: int) -> float:
        return 1 / length


@dataclass(frozen=True)
class NextStepMask(MaskDistribution):
    """Cuts the window at a random step: that step is scored, given the past; the future is hidden.

    Averaged over its cuts it is the chain rule of the window's log-likelihood.
    """

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        size = valid.sum(1, keepdim=True)
        cut = 1 + _uniform_below(size - 1, generator)  # 1 .. size - 1
        return valid & (_order(valid) >= cut) & (size > 1)

    def targets(self, hidden: Tensor) -> Tensor:
        return hidden & (hidden.cumsum(-1) == 1)

    def effective_ratio(self, length: int) -> float:
        return 0.5  # mean over the cuts 1 .. L - 1 of (L - cut) / L


@dataclass(frozen=True)
class SpanMask(MaskDistribution):
    """Hides one run of neighbouring steps, a ``ratio`` of the window, at a random place."""

    ratio: float = 0.5

    def __post_init__(self) -> None:
        _check_ratio(self.ratio, "AllMask() hides everything on purpose.")

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        size = valid.sum(1, keepdim=True)
        count = _counts(size, self.ratio, valid.shape[1])
        first = _uniform_below(size - count + 1, generator)
        order = _order(valid)
        return valid & (order >= first) & (order < first + count)

    def effective_ratio(self, length: int) -> float:
        return hidden_count(length, self.ratio) / length


@dataclass(frozen=True)
class LeaveOneOutMask(MaskDistribution):
    """Hides each step once: the whole pseudo-log-likelihood of a window, without sampling."""

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        size = valid.sum(1, keepdim=True)
        return valid & (_order(valid) == _uniform_below(size, generator)) & (size > 1)

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
                f"masks={masks} does not fit LeaveOneOutMask, which hides every one of the "
                f"length={length} steps once. Use masks={length}."
            )


@dataclass(frozen=True)
class AllMask(MaskDistribution):
    """Hides everything, on purpose: the predictor sees other inputs than the hidden ones (RND)."""

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        return valid.clone()

    def effective_ratio(self, length: int) -> float:
        return 1.0

    def require(self, length: int, masks: int) -> None:
        """Any length will do."""


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
                    f"{type(part).__name__} cannot be part of a mixture: parts hide whole steps, "
                    "one mask a window, and score all they hide."
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
