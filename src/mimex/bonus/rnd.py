"""RND: random network distillation, as masked prediction with everything masked."""

from __future__ import annotations

from math import sqrt
from typing import Unpack

from torch import Tensor, nn

from mimex.bonus.masks import AllMask
from mimex.bonus.prediction import MaskedPrediction, Shared
from mimex.data.checks import require_positive
from mimex.nn.networks import mlp


class RND(MaskedPrediction):
    """Rewards the error of predicting a frozen random network (Burda et al., 2018).

    Both networks see the newest step; the target's output is what is masked.

    Args:
        feature_dim: Features per step; inferred from the first window if None.
        length: Window length; only the newest step is used.
        hidden: Hidden layer widths of both networks.
        output_dim: Output width of both networks.
        lr: Adam learning rate (published: 1e-3); default from benchmarks/plans/variants_rnd.toml.
        shared: ``encoder``, ``normalize``, ``device``, ``seed``: see ``MaskedPrediction``.
    """

    def __init__(
        self,
        feature_dim: int | None = None,
        length: int = 1,
        *,
        hidden: tuple[int, ...] = (256, 256),
        output_dim: int = 288,
        lr: float = 3e-3,
        **shared: Unpack[Shared],
    ) -> None:
        require_positive(hidden=hidden, output_dim=output_dim)
        self.hidden, self.output_dim = hidden, output_dim
        super().__init__(feature_dim, length=length, mask=AllMask(), lr=lr, **shared)

    def build(self, feature_dim: int) -> nn.Module:
        """The frozen target and the predictor, of the same shape."""
        widths = (feature_dim, *self.hidden, self.output_dim)
        self.target = mlp(widths, gain=sqrt(2)).requires_grad_(False)
        self.predictor = mlp(widths, gain=sqrt(2))
        return nn.ModuleDict({"target": self.target, "predictor": self.predictor})

    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, masked: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Squared error of the predictor on the newest step."""
        newest = x[:, -1]
        residual: Tensor = self.predictor(newest) - self.target(newest)
        errors = residual.square().mean(1).unsqueeze(0) * masked[:, :, -1]  # (1, B)
        return errors, errors.new_zeros(len(x))
