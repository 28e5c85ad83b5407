"""DrQ-v2's encoder of stacked frames and its random shift (Yarats et al., 2021)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Generator, Tensor, nn

STRIDES = (2, 1, 1, 1)
"""Of the convolutions, 3 x 3 each, without padding (DrQ-v2)."""


class PixelEncoder(nn.Module):
    """Four convolutions: stacks of frames of bytes to flat features, 39,200 for 84 x 84 pixels.

    Activations have their channels last in memory, which is nearly twice as fast on CPUs.

    Args:
        channels: Of a stack of frames.
        image_size: Height and width of the frames (pixels).
        filters: Of each convolution.
    """

    def __init__(self, channels: int, image_size: int, filters: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        depth, side = channels, image_size
        for stride in STRIDES:
            layers += [nn.Conv2d(depth, filters, 3, stride), nn.ReLU(inplace=True)]
            depth, side = filters, (side - 3) // stride + 1
        if side < 1:
            raise ValueError(f"image_size={image_size} pixels is too small for the convolutions.")
        self.convolutions = nn.Sequential(*layers)
        self.features = filters * side**2
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.orthogonal_(module.weight, math.sqrt(2))
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Features ``(B, features)`` of uint8 images ``(B, channels, H, W)``."""
        x = images.to(torch.float32, memory_format=torch.channels_last)
        spread: Tensor = self.convolutions(x.mul_(1 / 255).sub_(0.5))
        return spread.permute(0, 2, 3, 1).flatten(1)  # in the order of memory: not copied


def draw_shifts(count: int, pad: int, generator: Generator) -> Tensor:
    """Shifts ``(count, 2)`` by whole pixels, down and right, from ``-pad`` to ``pad``.

    They are on the generator's device.
    """
    size = (count, 2)
    return torch.randint(-pad, pad + 1, size, generator=generator, device=generator.device)


def shift(images: Tensor, shifts: Tensor) -> Tensor:
    """Images moved by whole pixels, with their edges repeated, and channels last in memory.

    The published code interpolates at these very places, where nothing is left to interpolate.

    Args:
        images: ``(B, C, H, W)`` uint8.
        shifts: ``(B, 2)`` of ``draw_shifts``, on the same device.
    """
    if images.device.type != "cpu":
        return _gathered(images, shifts)
    source = images.permute(0, 2, 3, 1).numpy()  # NumPy copies bytes faster than PyTorch
    moved = np.empty(source.shape, source.dtype)
    height, width = source.shape[1:3]
    for image, out, (down, right) in zip(source, moved, shifts.tolist(), strict=True):
        top, bottom = max(down, 0), height + min(down, 0)
        left, end = max(right, 0), width + min(right, 0)
        out[top:bottom, left:end] = image[top - down : bottom - down, left - right : end - right]
        out[top:bottom, :left] = out[top:bottom, left : left + 1]
        out[top:bottom, end:] = out[top:bottom, end - 1 : end]
        out[:top] = out[top]
        out[bottom:] = out[bottom - 1]
    return torch.from_numpy(moved).permute(0, 3, 1, 2)


def _gathered(images: Tensor, shifts: Tensor) -> Tensor:
    """The same as ``shift``, in one operation on the device."""
    height, width = images.shape[2:]
    down, right = shifts[:, :1], shifts[:, 1:]
    rows = (torch.arange(height, device=images.device) - down).clamp(0, height - 1)  # (B, H)
    columns = (torch.arange(width, device=images.device) - right).clamp(0, width - 1)  # (B, W)
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    last = images.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]]
    return last.permute(0, 3, 1, 2)
