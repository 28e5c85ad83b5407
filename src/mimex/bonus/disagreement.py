"""Disagreement: how differently an ensemble of forward models predicts the next step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Generator, Tensor, nn

from mimex.bonus.inputs import check_widths
from mimex.bonus.masks import LastMask
from mimex.bonus.prediction import MaskedPrediction
from mimex.bonus.state import Shared
from mimex.nn.mlp import mlp


@dataclass(frozen=True)
class BootstrapMask(LastMask):
    """Hides the newest step, for each of some models in a random share of the windows.

    A model learns from the windows whose newest step is hidden for it: from a bootstrap sample of
    its own (double or nothing, Owen & Eckles, 2012).
    """

    models: int
    ratio: float = 0.5

    def draw(self, valid: Tensor, masks: int, generator: Generator) -> Tensor:
        last = self.sample(valid, generator)
        size = (self.models, len(valid), 1)
        uniform = torch.rand(size, generator=generator, dtype=torch.float32, device=valid.device)
        return last & (uniform < self.ratio)  # (models, B, L)


MOST_MODELS = 100
"""They are made one by one: more than anybody needs would take for ever instead of failing."""


class Disagreement(MaskedPrediction):
    """Pays for the disagreement of an ensemble about the next step (Pathak et al., 2019).

    Each model predicts the next step's features from a step and the action after it; the bonus is
    the variance of their predictions over the models, averaged over the features. Unlike an error
    of prediction it falls to zero on noise, too, about whose mean all models come to agree.

    Args:
        feature_dim: Numbers a step; taken from the first window when left out.
        action_dim: Numbers an action, or the number of discrete actions; taken from the first
            window, or from the wrapped environment, when left out.
        length: Steps a window, at least 2; only the newest transition is looked at.
        models: Forward models of the ensemble, at least 2.
        hidden: Widths of the hidden layers of each.
        lr: Learning rate of Adam; the default won a search (benchmarks/plans/bonus_search.toml).
        shared: As of ``Resumable``: ``encoder``, ``normalise``, ``device``, ``seed``.
    """

    def __init__(
        self,
        feature_dim: int | None = None,
        action_dim: int | None = None,
        length: int = 2,
        *,
        models: int = 5,
        hidden: tuple[int, ...] = (256,),
        lr: float = 3e-3,
        **shared: Unpack[Shared],
    ) -> None:
        check_widths(hidden=hidden)
        if not 2 <= models <= MOST_MODELS:
            raise ValueError(
                f"models={models} must be 2 to {MOST_MODELS}: one alone cannot disagree."
            )
        self.models, self.hidden = models, hidden
        super().__init__(
            feature_dim,
            length=length,
            mask=BootstrapMask(models),
            lr=lr,
            uses_actions=True,
            action_dim=action_dim,
            **shared,
        )

    def build(self, feature_dim: int) -> nn.Module:
        """The forward models."""
        assert self.action_dim is not None
        widths = (feature_dim + self.action_dim, *self.hidden, feature_dim)
        self.ensemble = nn.ModuleList(mlp(widths) for _ in range(self.models))
        return self.ensemble

    def score(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The variance over the models, and the errors of each on its own windows."""
        assert actions is not None
        before = torch.cat([x[:, -2], actions[:, -1]], dim=1)
        predicted = torch.stack([model(before) for model in self.ensemble])  # (models, B, D)
        whole = valid[:, -2:].all(1)  # there is a transition at all
        rewards = predicted.detach().var(0, correction=0).mean(1) * whole
        errors = (predicted - x[:, -1]).square().mean(2)  # (models, B)
        losses = (errors * hidden[:, :, -1]).sum(0) / BootstrapMask.ratio
        return rewards, losses * whole, torch.zeros_like(rewards)
