"""MIMEx that predicts random features of the hidden steps: a probe of what its own targets lack.

A hidden step is much like the visible ones beside it, so a masked autoencoder learns to copy, which
works in places that it has never been to. What a frozen random network makes of a step cannot be
copied: it has to be learned place by place, as for RND.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from mimex import MIMEx
from mimex.nn.mlp import mlp

OUTPUTS = 64


class RandomTargets(MIMEx):
    """As MIMEx, with whole steps hidden, but for what is predicted of them."""

    def build(self, feature_dim: int) -> nn.Module:
        """The autoencoder, and the frozen network that makes its targets."""
        super().build(feature_dim)
        self.autoencoder.decoder_pred = nn.Linear(self.size.decoder_width, OUTPUTS)
        self.target = mlp((feature_dim, 128, OUTPUTS), gain=sqrt(2)).requires_grad_(False)
        return nn.ModuleDict({"autoencoder": self.autoencoder, "target": self.target})

    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The squared error of the random features of what is hidden, ``(K, B)``."""
        masks, batch = hidden.shape[:2]
        asked = self.mask.targets(hidden) & valid
        rows = torch.arange(masks * batch)
        decoded, steps, real = self.autoencoder.decoded(
            x, rows % batch, hidden.flatten(0, 1), valid, actions, asked.flatten(0, 1)
        )
        with torch.no_grad():
            targets = self.target(x).flatten(0, 1)[steps]
        squares = (self.autoencoder.decoder_pred(decoded) - targets).square().mean(2)
        errors = (squares * real).sum(1) / real.sum(1).clamp(min=1)
        return errors.view(masks, batch), errors.new_zeros(batch)
