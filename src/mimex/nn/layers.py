"""Multilayer perceptrons, and a prediction layer that keeps little memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn


def mlp(
    widths: Sequence[int],
    *,
    activation: Callable[[], nn.Module] = nn.ReLU,
    gain: float | None = None,
    last_gain: float | None = None,
) -> nn.Sequential:
    """Linear layers from ``widths[0]`` to ``widths[-1]`` with an activation between.

    Args:
        widths: Input, hidden and output widths.
        activation: Makes the module between two layers.
        gain: If given, weights are orthogonal with this gain and biases zero.
        last_gain: Another gain for the last layer.
    """
    layers: list[nn.Module] = []
    for depth, (wide_in, wide_out) in enumerate(pairwise(widths), start=1):
        linear = nn.Linear(wide_in, wide_out)
        last = depth == len(widths) - 1
        if gain is not None:
            nn.init.orthogonal_(linear.weight, last_gain if last and last_gain else gain)
            nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, activation()]
    return nn.Sequential(*layers)


def squared_error(
    x: Tensor, weight: Tensor, bias: Tensor, features: Tensor, rows: Tensor
) -> Tensor:
    """The error ``(R,)`` of predicting ``features[rows]`` by a linear layer on ``x (R, C)``.

    Layer and error are one operation. For wide predictions (39,200 numbers from a convolutional
    encoder) autograd would keep the prediction, the difference and its square; this keeps the
    difference alone.
    """
    error: Tensor = _SquaredError.apply(x, weight, bias, features, rows)  # type: ignore[no-untyped-call]
    return error


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
