"""A linear prediction layer and its squared error as one operation.

For wide predictions (39,200 numbers from a convolutional encoder) autograd would keep the
prediction, the difference and its square; this keeps the difference alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _SquaredError(torch.autograd.Function):
    """``mean((x @ W.T + b - rows)^2)`` over the features, with one array of that width kept."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, features: Tensor, rows: Tensor
    ) -> Tensor:
        residual = torch.addmm(bias, x, weight.t())  # (R, D)
        residual -= features[rows]
        ctx.save_for_backward(x, weight, residual)
        norms: Tensor = torch.linalg.vector_norm(residual, dim=1)
        return norms.square() / residual.shape[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, residual = ctx.saved_tensors
        # The factor goes onto the narrow arrays, never onto the residual.
        factor = gradients[0].unsqueeze(1) * (2 / residual.shape[1])  # (R, 1)
        return (
            (residual @ weight) * factor,
            residual.t() @ (x * factor),
            (factor.t() @ residual).squeeze(0),
            None,
            None,
        )


def squared_error(
    x: Tensor, weight: Tensor, bias: Tensor, features: Tensor, rows: Tensor
) -> Tensor:
    """The error ``(R,)`` of predicting ``features[rows]`` by a linear layer on ``x (R, C)``."""
    error: Tensor = _SquaredError.apply(x, weight, bias, features, rows)  # type: ignore[no-untyped-call]
    return error
