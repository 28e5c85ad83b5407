"""Multilayer perceptrons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import nn


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
