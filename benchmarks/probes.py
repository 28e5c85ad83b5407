"""MIMEx in variants that were tried and are not in the library: what else could be paid, or hidden.

As bonuses of the command line they are in `benchmarks.candidates`; `benchmarks.random_targets` has
one more.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from mimex import MIMEx, Window
from mimex.bonus.masks import FeatureMask
from mimex.bonus.surprise import surprise
from mimex.types import Metrics

MODELS, LAG = 4, 10
"""Models that may disagree; updates that a slow copy is behind."""


def filled_in(
    model: Any, codes: bool | None, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What a model makes of single hidden numbers: predictions, which were asked, losses ``(B,)``.

    Predictions are ``(K, B, L, D)``, probabilities where steps are codes.
    """
    asked = hidden & valid.unsqueeze(2)
    predictions = model.numbers(x, hidden, valid, actions)
    if codes:
        likelihood, _ = surprise(predictions, x.expand_as(predictions), asked)
        scored = asked.any(-1)
        losses = (likelihood * scored).sum((0, 2)) / scored.sum((0, 2)).clamp(min=1)
        return predictions.masked_fill(~asked, -1e9).softmax(-1) * asked, asked, losses
    squares = (predictions - x).square() * asked
    return predictions, asked, squares.sum((0, 2, 3)) / asked.sum((0, 2, 3)).clamp(min=1)


class Fall(MIMEx):
    """Pays by how much the error has fallen: a slow copy's error beyond that of the model."""

    def build(self, feature_dim: int) -> nn.Module:
        """The autoencoder, and its slow copy."""
        super().build(feature_dim)
        self.behind = deepcopy(self.autoencoder).requires_grad_(False)
        return nn.ModuleDict({"autoencoder": self.autoencoder, "behind": self.behind})

    def score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards, losses and no deviation."""
        window = (self.codes, x, actions, valid, hidden)
        losses = filled_in(self.autoencoder, *window)[2]
        with torch.no_grad():
            rewards = (filled_in(self.behind, *window)[2] - losses).clamp(min=0)
        return rewards, losses, torch.zeros_like(rewards)

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """As any; then the copy follows."""
        result = super().learn(window, train_fraction)
        with torch.no_grad():
            pairs = zip(self.behind.parameters(), self.autoencoder.parameters(), strict=True)
            for slow, fast in pairs:
                slow.lerp_(fast, 1 / LAG)
        return result


class Disagree(MIMEx):
    """Pays for what several autoencoders fill in differently."""

    def build(self, feature_dim: int) -> nn.Module:
        """Models that differ by their first weights."""
        models = [super(Disagree, self).build(feature_dim) for _ in range(MODELS)]
        self.models = nn.ModuleList(models)
        return self.models

    def score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Variance over models of what is filled in, a mean over it; their losses' sum."""
        window = (self.codes, x, actions, valid, hidden)
        predictions, asked, losses = zip(
            *(filled_in(model, *window) for model in self.models), strict=True
        )
        variance = torch.stack(predictions).detach().var(0) * asked[0]
        rewards = variance.sum((0, 2, 3)) / asked[0].sum((0, 2, 3)).clamp(min=1)
        return rewards, torch.stack(losses).sum(0), torch.zeros_like(rewards)


@dataclass(frozen=True)
class NewestMask(FeatureMask):
    """As a feature mask, and for one window in two the whole newest step."""

    def sample(self, valid: Tensor, generator: Generator) -> Tensor:
        """Hidden numbers ``(B, L, D)``."""
        hidden = super().sample(valid, generator)
        whole = torch.rand(len(valid), generator=generator, device=valid.device) < 0.5
        hidden[whole, -1] = True
        return hidden


class Newest(MIMEx):
    """Hides the newest step more often than the others."""

    def start(self, feature_dim: int) -> None:
        """Makes the networks, with a mask of its own."""
        if isinstance(self.mask, FeatureMask):
            self.mask = NewestMask(self.mask.ratio)
        super().start(feature_dim)


class Encoded(MIMEx):
    """Sees its features through a function of its own, `seen`."""

    @property
    def encoder(self) -> Any:
        """What the features go through."""
        return self.seen

    @encoder.setter
    def encoder(self, _: Any) -> None:
        """None is given."""

    def seen(self, features: Tensor) -> Tensor:
        """Features ``(B, D)`` as the model takes them."""
        raise NotImplementedError


class Projected(Encoded):
    """Fills in random projections of the features."""

    def seen(self, features: Tensor) -> Tensor:
        """As many numbers, each a mixture of all, ``(B, D)``."""
        width = features.shape[1]
        drawn = torch.randn(width, width, generator=Generator().manual_seed(0))
        return features.float() @ drawn / width**0.5


class Whitened(Encoded):
    """Fills in features that are uncorrelated and of variance 1, by the covariance so far."""

    moments: Tensor | None = None  # of (1, features): their sums of products

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """As any, once the covariance has taken in the newest steps."""
        newest = window.features[:, -1].double()
        rows = torch.cat([torch.ones(len(newest), 1, dtype=newest.dtype), newest], 1)
        self.moments = rows.T @ rows + (0 if self.moments is None else self.moments)
        return super().learn(window, train_fraction)

    def seen(self, features: Tensor) -> Tensor:
        """``(B, D)``, cut off at five deviations."""
        if self.moments is None:
            return features.float()
        means = self.moments[0, 1:] / self.moments[0, 0]
        covariance = self.moments[1:, 1:] / self.moments[0, 0] - means.outer(means)
        values, axes = torch.linalg.eigh(covariance)
        turn = axes / (values.clamp(min=0) + 1e-4 * values.max()).sqrt()
        return ((features.double() - means) @ turn).clamp(-5, 5).float()
