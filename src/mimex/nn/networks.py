"""MLPs and convolutional encoders, and the random shift of DrQ-v2."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Generator, Tensor, nn

CONV_LAYERS = ((8, 4), (4, 2), (3, 1))
"""Kernel size and stride of ``ConvEncoder``'s layers (Mnih et al., 2015)."""

MIN_IMAGE_SIZE = 36
"""Smallest images of ``ConvEncoder``: 36 -> 8 -> 3 -> 1 pixels."""

DRQV2_STRIDES = (2, 1, 1, 1)
"""Strides of DrQ-v2's 3 x 3 convolutions (Yarats et al., 2021)."""


def mlp(
    widths: Sequence[int],
    *,
    activation: Callable[[], nn.Module] = nn.ReLU,
    gain: float | None = None,
    last_gain: float | None = None,
) -> nn.Sequential:
    """A multilayer perceptron.

    Args:
        widths: Input, hidden and output widths.
        activation: Constructs the activation between two layers.
        gain: Gain of orthogonal weights, with zero biases; None for PyTorch's initialization.
        last_gain: Gain of the last layer, if different.
    """
    layers: list[nn.Module] = []
    for depth, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        linear = nn.Linear(inputs, outputs)
        last = depth == len(widths) - 1
        if gain is not None:
            nn.init.orthogonal_(linear.weight, last_gain if last and last_gain else gain)
            nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, activation()]
    return nn.Sequential(*layers)


class ConvEncoder(nn.Module):
    """Three convolutions and a linear layer, from uint8 images to normalized features.

    The filters are those of Mnih et al. (2015), at half their number for speed on CPUs. The final
    layer norm keeps the features at one scale while they are trained, which the bonus needs.

    Args:
        image_size: Height and width of the images (pixels), at least 36.
        features: Output width.
        channels: Filters of the three convolutions.
        depth: Input channels, over all stacked frames.
    """

    def __init__(
        self,
        image_size: int,
        features: int = 128,
        channels: Sequence[int] = (16, 32, 32),
        depth: int = 3,
    ) -> None:
        super().__init__()
        if image_size < MIN_IMAGE_SIZE:
            raise ValueError(
                f"image_size={image_size} pixels; the convolutions need at least {MIN_IMAGE_SIZE}."
            )
        if len(channels) != len(CONV_LAYERS):
            raise ValueError(f"channels={tuple(channels)}; expected three numbers of filters.")
        self.image_size, self.features, self.depth = image_size, features, depth
        layers: list[nn.Module] = []
        side = image_size
        for width, (kernel, stride) in zip(channels, CONV_LAYERS, strict=True):
            layers += [nn.Conv2d(depth, width, kernel, stride), nn.ReLU()]
            depth, side = width, (side - kernel) // stride + 1
        self.convolutions = nn.Sequential(*layers)
        self.linear = nn.Linear(depth * side**2, features)
        self.norm = nn.LayerNorm(features)
        self.apply(_init_orthogonal)

    def forward(self, images: Tensor) -> Tensor:
        """Maps uint8 images ``(..., C, H, W)`` to ``(..., features)``."""
        flat = as_batch(images, self.image_size, self.depth)
        h = self.convolutions(flat / 255 - 0.5).flatten(1)
        encoded: Tensor = self.norm(self.linear(h))
        return encoded.view(*images.shape[:-3], self.features)


class PixelEncoder(nn.Module):
    """DrQ-v2's encoder: four convolutions, from stacked frames to 39,200 features at 84 x 84.

    Activations are channels-last in memory, which is nearly twice as fast on CPUs.

    Args:
        channels: Input channels, over all stacked frames.
        image_size: Height and width of the frames (pixels).
        filters: Filters of each convolution.
    """

    def __init__(self, channels: int, image_size: int, filters: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        depth, side = channels, image_size
        for stride in DRQV2_STRIDES:
            layers += [nn.Conv2d(depth, filters, 3, stride), nn.ReLU(inplace=True)]
            depth, side = filters, (side - 3) // stride + 1
        if side < 1:
            raise ValueError(f"image_size={image_size} pixels is too small for the convolutions.")
        self.convolutions = nn.Sequential(*layers)
        self.features = filters * side**2
        self.apply(_init_orthogonal)

    def forward(self, images: Tensor) -> Tensor:
        """Maps uint8 images ``(B, channels, H, W)`` to ``(B, features)``."""
        x = images.to(torch.float32, memory_format=torch.channels_last)
        h: Tensor = self.convolutions(x.mul_(1 / 255).sub_(0.5))
        return h.permute(0, 2, 3, 1).flatten(1)  # memory order, so that nothing is copied


def as_batch(images: Tensor, image_size: int, depth: int = 3) -> Tensor:
    """Flattens uint8 images ``(..., C, H, W)`` to ``(B, C, H, W)``; ValueError for others."""
    expected = (depth, image_size, image_size)
    if images.dtype != torch.uint8 or tuple(images.shape[-3:]) != expected:
        raise ValueError(
            f"images is {images.dtype} of shape {tuple(images.shape)}; expected uint8 of shape "
            f"(..., {', '.join(map(str, expected))}), channels first."
        )
    return images.reshape(-1, *expected)


def _init_orthogonal(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.orthogonal_(module.weight, math.sqrt(2))
        assert module.bias is not None
        nn.init.zeros_(module.bias)


def draw_shifts(count: int, pad: int, generator: Generator) -> Tensor:
    """Random shifts ``(count, 2)``, down and right, from ``-pad`` to ``pad`` pixels."""
    size = (count, 2)
    return torch.randint(-pad, pad + 1, size, generator=generator, device=generator.device)


def shift(images: Tensor, shifts: Tensor) -> Tensor:
    """Shifts images by whole pixels and repeats their edges; the result is channels-last.

    The published code interpolates at the same positions, which are whole pixels.

    Args:
        images: ``(B, C, H, W)`` uint8.
        shifts: ``(B, 2)`` of ``draw_shifts``, on the same device.
    """
    if images.device.type != "cpu":
        return _shift_on_device(images, shifts)
    source = images.permute(0, 2, 3, 1).numpy()  # NumPy copies bytes faster than PyTorch
    shifted = np.empty(source.shape, source.dtype)
    height, width = source.shape[1:3]
    for image, out, (down, right) in zip(source, shifted, shifts.tolist(), strict=True):
        top, bottom = max(down, 0), height + min(down, 0)
        left, end = max(right, 0), width + min(right, 0)
        out[top:bottom, left:end] = image[top - down : bottom - down, left - right : end - right]
        out[top:bottom, :left] = out[top:bottom, left : left + 1]
        out[top:bottom, end:] = out[top:bottom, end - 1 : end]
        out[:top] = out[top]
        out[bottom:] = out[bottom - 1]
    return torch.from_numpy(shifted).permute(0, 3, 1, 2)


def _shift_on_device(images: Tensor, shifts: Tensor) -> Tensor:
    height, width = images.shape[2:]
    down, right = shifts[:, :1], shifts[:, 1:]
    rows = (torch.arange(height, device=images.device) - down).clamp(0, height - 1)  # (B, H)
    columns = (torch.arange(width, device=images.device) - right).clamp(0, width - 1)  # (B, W)
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    shifted = images.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]]
    return shifted.permute(0, 3, 1, 2)
