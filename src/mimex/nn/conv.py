"""A small convolutional encoder of images, trained with the policy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

SMALLEST = 36
"""Pixels that leave one position after the three convolutions (36 -> 8 -> 3 -> 1)."""

_KERNELS_AND_STRIDES = ((8, 4), (4, 2), (3, 1))  # Mnih et al., 2015


class ConvEncoder(nn.Module):
    """Three convolutions and a linear layer, from images of bytes to normalized features.

    The filters are those of Mnih et al. (2015), at half their number for the sake of CPUs. The last
    layer norm keeps the features at one scale while they learn, which the bonus on them needs.

    Args:
        image_size: Height and width of the images (pixels), at least 36.
        features: Numbers per image that come out.
        channels: Filters of the three convolutions.
        depth: Colours of the images, of all that are stacked.
    """

    def __init__(
        self,
        image_size: int,
        features: int = 128,
        channels: Sequence[int] = (16, 32, 32),
        depth: int = 3,
    ) -> None:
        super().__init__()
        if image_size < SMALLEST:
            raise ValueError(
                f"image_size={image_size} pixels; the convolutions need at least {SMALLEST}."
            )
        if len(channels) != len(_KERNELS_AND_STRIDES):
            raise ValueError(f"channels={tuple(channels)}; expected three numbers of filters.")
        self.image_size = image_size
        self.features, self.depth = features, depth
        layers: list[nn.Module] = []
        side = image_size
        for width, (kernel, stride) in zip(channels, _KERNELS_AND_STRIDES, strict=True):
            layers += [nn.Conv2d(depth, width, kernel, stride), nn.ReLU()]
            depth, side = width, (side - kernel) // stride + 1
        self.convolutions = nn.Sequential(*layers)
        self.linear = nn.Linear(depth * side**2, features)
        self.norm = nn.LayerNorm(features)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(module.weight, math.sqrt(2))
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Encodes images.

        Args:
            images: ``(..., C, H, W)`` uint8.

        Returns:
            ``(..., features)``.
        """
        flat = as_batch(images, self.image_size, self.depth)
        spread = self.convolutions(flat / 255 - 0.5).flatten(1)
        encoded: Tensor = self.norm(self.linear(spread))
        return encoded.view(*images.shape[:-3], self.features)


def as_batch(images: Tensor, image_size: int, depth: int = 3) -> Tensor:
    """Images ``(..., C, H, W)`` as one batch ``(B, C, H, W)``; refuses what is none."""
    expected = (depth, image_size, image_size)
    if images.dtype != torch.uint8 or tuple(images.shape[-3:]) != expected:
        raise ValueError(
            f"images is {images.dtype} of shape {tuple(images.shape)}; expected uint8 of shape "
            f"(..., {', '.join(map(str, expected))}), colours first."
        )
    return images.reshape(-1, *expected)
