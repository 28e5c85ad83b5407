"""RND: random network distillation, as masked prediction with everything hidden."""

from __future__ import annotations

from math import sqrt
from typing import Unpack

from torch import Tensor, nn

from mimex.bonus.inputs import check_widths
from mimex.bonus.masks import AllMask
from mimex.bonus.prediction import MaskedPrediction
from mimex.bonus.state import Shared
from mimex.nn.mlp import mlp


class RND(MaskedPrediction):
    """Pays for the error of predicting a frozen random network (Burda et al., 2018).

    The input is the random network's output on the newest step; all of it is hidden; the
    predictor sees the step itself.

    Args:
        feature_dim: Numbers a step; taken from the first window when left out.
        length: Steps a window; only the newest is looked at.
        hidden: Widths of the hidden layers of both networks.
        output_dim: Width of their output.
        lr: Learning rate of Adam; 1e-3 is the published one. The default had the search of
            MIMEx's (benchmarks/plans/variants_rnd.toml).
        shared: As of ``Resumable``: ``encoder``, ``normalise``, ``device``, ``seed``.
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
        check_widths(hidden=hidden, output_dim=output_dim)
        self.hidden, self.output_dim = hidden, output_dim
        super().__init__(feature_dim, length=length, mask=AllMask(), lr=lr, **shared)

    def build(self, feature_dim: int) -> nn.Module:
        """The frozen target and the predictor, of the same shape."""
        widths = (feature_dim, *self.hidden, self.output_dim)
        self.target = mlp(widths, gain=sqrt(2)).requires_grad_(False)
        self.predictor = mlp(widths, gain=sqrt(2))
        return nn.ModuleDict({"target": self.target, "predictor": self.predictor})

    def errors(
        self, x: Tensor, actions: Tensor | None, valid: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The squared error of the predictor on the newest step."""
        newest = x[:, -1]
        residual: Tensor = self.predictor(newest) - self.target(newest)
        errors = residual.square().mean(1).unsqueeze(0) * hidden[:, :, -1]  # (1, B)
        return errors, errors.new_zeros(len(x))
