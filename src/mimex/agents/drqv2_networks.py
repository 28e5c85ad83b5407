"""Encoder, actor and critic of DrQ-v2 (Yarats et al., 2021)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mimex.agents.drqv2_settings import DrQv2Settings
from mimex.agents.encoders import IMAGE, VECTOR, ObservationReader
from mimex.data.rollout import Stored
from mimex.nn.mlp import mlp
from mimex.nn.pixels import PixelEncoder, shift

EDGE = 1e-6
"""Actions stay this far inside of [-1, 1] (DrQ-v2)."""


class Encoded(NamedTuple):
    """What the encoder made of a batch, before the update."""

    pieces: list[Tensor]  # (b, F) of observations, with their graph
    windows: Tensor | None  # (B, L, D) what the bonus sees of the windows


class InputEncoder(nn.Module):
    """Vectors as they are, pictures by convolutions, or both, one behind the other.

    Numbers beside a picture travel as planes of bytes behind its own, so that a replay buffer
    keeps one array for an observation.

    Attributes:
        shape: Of an observation: ``(C, H, W)`` bytes, or ``(D,)`` numbers.
        features: Numbers that come out.

    Args:
        reader: Of the observations.
        filters: Of each convolution.
    """

    def __init__(self, reader: ObservationReader, filters: int) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = (reader.vector,)
        self.features, self.vector, self.depth = reader.vector, reader.vector, 0
        self.pixels = None
        if reader.image is not None:
            self.depth, side = reader.square_image
            planes = math.ceil(4 * self.vector / side**2)
            self.shape = (self.depth + planes, side, side)
            self.pixels = PixelEncoder(self.depth, side, filters)
            self.features += self.pixels.features

    def pack(self, stored: Stored) -> Tensor:
        """What was read of observations as one tensor ``(B, *shape)``."""
        if self.pixels is None or not self.vector:
            return stored[VECTOR if self.pixels is None else IMAGE]
        image, (depth, height, width) = stored[IMAGE], self.shape
        planes = torch.zeros(len(image), depth - self.depth, height, width).to(image)
        planes.flatten(1)[:, : 4 * self.vector] = stored[VECTOR].contiguous().view(torch.uint8)
        return torch.cat([image, planes], dim=1)

    def shifted(self, packed: Tensor, shifts: Tensor) -> Tensor:
        """The same with the pictures moved by ``shifts`` ``(B, 2)``."""
        pictures = shift(packed[:, : self.depth], shifts)
        return torch.cat([pictures, packed[:, self.depth :]], 1) if self.vector else pictures

    def forward(self, packed: Tensor) -> Tensor:
        """Features ``(B, features)``."""
        if self.pixels is None:
            return packed
        seen: Tensor = self.pixels(packed[:, : self.depth])
        if not self.vector:
            return seen
        numbers = packed[:, self.depth :].flatten(1)[:, : 4 * self.vector].contiguous()
        return torch.cat([seen, numbers.view(torch.float32)], dim=1)


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
