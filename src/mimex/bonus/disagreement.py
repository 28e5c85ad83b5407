"""Disagreement: the variance of an ensemble of forward models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Generator, Tensor, nn

from mimex.bonus.masks import LastMask
from mimex.bonus.prediction import MaskedPrediction, Shared
from mimex.data.checks import require_positive
from mimex.nn.networks import mlp


@dataclass(frozen=True)
class BootstrapMask(LastMask):
    """Masks the newest step, for each model in a random fraction of the windows.

    A model learns from the windows whose newest step is masked for it: its own bootstrap sample
    (double-or-nothing bootstrap, Owen & Eckles, 2012).
    """

    models: int
    ratio: float = 0.5

    def draw(self, valid: Tensor, masks: int, generator: Generator) -> Tensor:
        last = self.sample(valid, generator)
        size = (self.models, len(valid), 1)
        uniform = torch.rand(size, generator=generator, dtype=torch.float32, device=valid.device)
        return last & (uniform < self.ratio)  # (models, B, L)


class Disagreement(MaskedPrediction):
    """Rewards the disagreement of an ensemble of forward models (Pathak et al., 2019).

    Each model predicts the next step's features from a step and the action taken there. The reward
    is the variance of the predictions over the models, averaged over the features. Unlike a
    prediction error it also vanishes on noise, whose mean all models learn.

    Args:
        feature_dim: Features per step; inferred from the first window if None.
        action_dim: Action dimensions, or number of discrete actions; inferred from the first
            window, or from the wrapped environment, if None.
        length: Window length, at least 2; only the newest transition is used.
        models: Number of forward models, at least 2.
        hidden: Hidden layer widths of each model.
        lr: Adam learning rate; default from benchmarks/plans/bonus_search.toml.
        shared: ``encoder``, ``normalize``, ``device``, ``seed``: see ``MaskedPrediction``.
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
        require_positive(hidden=hidden)
        if models < 2:
            raise ValueError(f"models={models} must be at least 2: one model has no variance.")
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
        self, x: Tensor, actions: Tensor | None, valid: Tensor, masked: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Variance over the models, and the loss of each model on its own windows."""
        assert actions is not None
        state_action = torch.cat([x[:, -2], actions[:, -1]], dim=1)
        predicted = torch.stack([model(state_action) for model in self.ensemble])  # (models, B, D)
        complete = valid[:, -2:].all(1)
        rewards = predicted.detach().var(0, correction=0).mean(1) * complete
        errors = (predicted - x[:, -1]).square().mean(2)  # (models, B)
        losses = (errors * masked[:, :, -1]).sum(0) / BootstrapMask.ratio
        return rewards, losses * complete, torch.zeros_like(rewards)
