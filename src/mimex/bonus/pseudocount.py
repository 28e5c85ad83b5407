"""Pseudo-count: masked prediction within a single state."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from mimex.bonus.masking import FeatureMask
from mimex.bonus.prediction import MaskedPrediction, Shared
from mimex.bonus.surprise import Loss, surprisal
from mimex.data.checks import require_choice, require_positive
from mimex.nn.networks import mlp


class PseudoCount(MaskedPrediction):
    """Rewards the error of predicting masked features of a state from the visible ones.

    The input is the newest state, of which a random subset of the features is masked. States that
    were visited often are predicted well.

    Args:
        feature_dim: Features per state, at least 2; inferred from the first window if None.
        length: Window length; only the newest step is used.
        mask_ratio: Fraction of the features that is masked.
        masks: Masks per state, K; their errors are averaged.
        hidden: Hidden layer widths of the predictor.
        lr: Adam learning rate; default from benchmarks/plans/bonus_search.toml.
        discrete_obs: Whether observations are discrete (integers or one-hot codes). If None, the
            wrapped environment's observation space decides; without one, windows of integers are.
        loss: For discrete observations: "likelihood" (softmax, and ``surprisal`` as the reward) or
            "squared" error, as for all other observations.
        shared: ``encoder``, ``normalize``, ``device``, ``seed``: see ``MaskedPrediction``.
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
        require_positive(hidden=hidden)
        require_choice(Loss, loss=loss)
        self.hidden, self.discrete_obs, self.loss = hidden, discrete_obs, loss
        mask = FeatureMask(mask_ratio)
        super().__init__(feature_dim, length=length, mask=mask, masks=masks, lr=lr, **shared)

    def build(self, feature_dim: int) -> nn.Module:
        """An MLP from the visible features and the mask to all features."""
        return mlp((2 * feature_dim, *self.hidden, feature_dim))

    def usable_steps(self, valid: Tensor) -> Tensor:
        """The newest step only."""
        newest = torch.zeros_like(valid)
        newest[:, -1] = valid[:, -1]
        return newest

    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, masked: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean squared error of the masked features of the newest state."""
        state, masked = x[:, -1], masked[:, :, -1]  # (B, D), (K, B, D)
        squares = (self._predict(state, masked) - state).square() * masked
        errors = squares.sum(2) / masked.sum(2).clamp(min=1)  # (K, B)
        return errors, errors.new_zeros(len(x))

    def score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, masked: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns rewards, losses and the std over masks of each window: ``(B,)`` each."""
        if not self.categorical:
            return super().score(x, actions, valid, masked)
        state, newest = x[:, -1], masked[:, :, -1]
        logits = self._predict(state, newest)
        nll, excess = surprisal(logits, state.expand_as(logits), newest)
        rewards, std = self.mean_over_masks(excess.clamp(min=0), masked)
        return rewards, nll.mean(0), std

    def _predict(self, state: Tensor, masked: Tensor) -> Tensor:
        """Predictions ``(K, B, D)`` of states ``(B, D)`` from their visible features."""
        visible = state.masked_fill(masked, 0.0)
        predicted: Tensor = self.network(torch.cat([visible, masked.to(visible.dtype)], dim=-1))
        return predicted
