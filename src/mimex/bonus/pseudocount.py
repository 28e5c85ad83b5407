"""A pseudo-count: how badly hidden numbers of one state follow from the others."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from mimex.bonus.inputs import check_widths
from mimex.bonus.masks import FeatureMask
from mimex.bonus.prediction import MaskedPrediction
from mimex.bonus.state import Shared
from mimex.bonus.surprise import Loss, check_loss, surprise
from mimex.nn.mlp import mlp


class PseudoCount(MaskedPrediction):
    """Pays for the pseudo-likelihood error of a state under random masks of its numbers.

    The input is the newest state, a random subset of its numbers is hidden, and they are
    predicted from the visible ones. States seen often are predicted well.

    Args:
        feature_dim: Numbers a state, at least 2; taken from the first window when left out.
        length: Steps a window; only the newest is looked at.
        mask_ratio: Share of the numbers that is hidden.
        masks: Masks a state, averaged, K.
        hidden: Widths of the predictor's hidden layers.
        lr: Learning rate of Adam; the default won a search (benchmarks/plans/bonus_search.toml).
        discrete_obs: Whether observations are discrete (integers, or one-hot codes), which are
            predicted by softmax (``mimex.bonus.surprise``). When left out, as the wrapped
            environment's observation space says; without one, where windows hold integers.
        loss: How discrete observations are predicted: "likelihood" (softmax, rewarded by the
            likelihood less the entropy), or "squared" error, as all else and as in RND, ICM and
            Disagreement, for comparisons with one loss.
        shared: As of ``Resumable``: ``encoder``, ``normalise``, ``device``, ``seed``.
    """

    def __init__(
        self,
        feature_dim: int | None = None,
        length: int = 1,
        mask_ratio: float = 0.5,
        masks: int = 1,
        *,
        hidden: tuple[int, ...] = (256, 256),
        lr: float = 3e-3,
        discrete_obs: bool | None = None,
        loss: Loss = "likelihood",
        **shared: Unpack[Shared],
    ) -> None:
        check_widths(hidden=hidden)
        check_loss(loss)
        self.loss: Loss = loss
        self.hidden, self.discrete_obs = hidden, discrete_obs
        mask = FeatureMask(mask_ratio)
        super().__init__(feature_dim, length=length, mask=mask, masks=masks, lr=lr, **shared)

    @property
    def codes(self) -> bool:
        """Whether features are treated as one-hot codes, not as numbers."""
        return super().codes and self.loss == "likelihood"

    def build(self, feature_dim: int) -> nn.Module:
        """A perceptron from the visible numbers, and which ones they are, to all numbers."""
        return mlp((2 * feature_dim, *self.hidden, feature_dim))

    def counts_as_data(self, valid: Tensor) -> Tensor:
        """The newest step only."""
        newest = torch.zeros_like(valid)
        newest[:, -1] = valid[:, -1]
        return newest

    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The mean squared error of the hidden numbers of the newest state."""
        state, hidden = x[:, -1], hidden[:, :, -1]  # (B, D), (K, B, D)
        squares = (self._predict(state, hidden) - state).square() * hidden
        errors = squares.sum(2) / hidden.sum(2).clamp(min=1)  # (K, B)
        return errors, errors.new_zeros(len(x))

    def score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards, losses and the deviation over masks; of codes by their likelihood."""
        if not self.codes:
            return super().score(x, actions, valid, hidden)
        state, newest = x[:, -1], hidden[:, :, -1]
        logits = self._predict(state, newest)
        likelihood, beyond = surprise(logits, state.expand_as(logits), newest)
        rewards, spread = self.over_masks(beyond.clamp(min=0), hidden)
        return rewards, likelihood.mean(0), spread

    def _predict(self, state: Tensor, hidden: Tensor) -> Tensor:
        """Predictions ``(K, B, D)`` of states ``(B, D)`` from what is not hidden of them."""
        seen = state.masked_fill(hidden, 0.0)
        predicted: Tensor = self.network(torch.cat([seen, hidden.to(seen.dtype)], dim=-1))
        return predicted
