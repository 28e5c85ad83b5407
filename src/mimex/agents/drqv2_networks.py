"""Actor and critic of DrQ-v2 (Yarats et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mimex.agents.drqv2_settings import DrQv2Settings
from mimex.nn.layers import mlp

EDGE = 1e-6
"""Actions stay this far inside of [-1, 1] (DrQ-v2)."""


class Actor(nn.Module):
    """The policy: trunk and perceptron, to the mean of each action in (-1, 1)."""

    def __init__(self, features: int, action_dim: int, settings: DrQv2Settings) -> None:
        super().__init__()
        self.trunk = _trunk(features, settings.trunk)
        hidden = (settings.hidden, settings.hidden)
        self.policy = mlp((settings.trunk, *hidden, action_dim), activation=_relu, gain=1.0)

    def forward(self, features: Tensor) -> Tensor:
        """Means ``(B, A)``."""
        mean: Tensor = self.policy(self.trunk(features)).tanh()
        return mean


class Critic(nn.Module):
    """Twin values of an action: one trunk, two perceptrons."""

    def __init__(self, features: int, action_dim: int, settings: DrQv2Settings) -> None:
        super().__init__()
        self.trunk = _trunk(features, settings.trunk)
        widths = (settings.trunk + action_dim, settings.hidden, settings.hidden, 1)
        self.q1 = mlp(widths, activation=_relu, gain=1.0)
        self.q2 = mlp(widths, activation=_relu, gain=1.0)

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """Both values ``(2, B)``."""
        inputs = torch.cat([self.trunk(features), actions], dim=1)
        return torch.stack([self.q1(inputs).squeeze(1), self.q2(inputs).squeeze(1)])


def noisy(mean: Tensor, noise: Tensor) -> Tensor:
    """Means plus noise, kept inside of [-1, 1]; the gradient passes as if they were not."""
    actions = mean + noise
    return actions + (actions.clamp(-1 + EDGE, 1 - EDGE) - actions).detach()


def _trunk(features: int, width: int) -> nn.Sequential:
    linear = nn.Linear(features, width)
    nn.init.orthogonal_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.LayerNorm(width), nn.Tanh())


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)
