"""A pseudo-count: how badly hidden numbers of one state follow from the others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mimex.bonus.inputs import Encoder, check_widths
from mimex.bonus.masks import FeatureMask
from mimex.bonus.prediction import MaskedPrediction
from mimex.bonus.surprise import surprise
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
        lr: Learning rate of Adam.
        encoder: Turns raw observations into features; needed for images.
        normalise: Feed features normalised by running statistics.
        one_hot: Whether states are codes of discrete values, which are predicted as such
            (``mimex.bonus.surprise``). When left out, the first states tell.
        device: Where the network lives.
        seed: Of the initial weights and the masks.
    """

    def __init__(
        self,
        feature_dim: int | None = None,
        length: int = 1,
        mask_ratio: float = 0.5,
        masks: int = 1,
        *,
        hidden: tuple[int, ...] = (256, 256),
        lr: float = 1e-3,
        encoder: Encoder | None = None,
        normalise: bool = False,
        one_hot: bool | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        check_widths(hidden=hidden)
        self.hidden, self.one_hot = hidden, one_hot
        super().__init__(
            feature_dim,
            length=length,
            mask=FeatureMask(mask_ratio),
            masks=masks,
            lr=lr,
            action_dim=None,
            encoder=encoder,
            normalise=normalise,
            device=device,
            seed=seed,
        )

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
        """The mean squared error of the hidden numbers of the newest state, or their surprise."""
        state, hidden = x[:, -1], hidden[:, :, -1]  # (B, D), (K, B, D)
        seen = state.masked_fill(hidden, 0.0)
        predicted: Tensor = self.network(torch.cat([seen, hidden.to(seen.dtype)], dim=-1))
        if self.one_hot:
            likelihood, beyond = surprise(predicted, state.expand_as(predicted), hidden)
            return beyond.clamp(min=0), likelihood.mean(0)
        squares = (predicted - state).square() * hidden
        errors = squares.sum(2) / hidden.sum(2).clamp(min=1)  # (K, B)
        return errors, errors.new_zeros(len(x))
