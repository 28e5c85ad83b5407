"""Masked autoencoding of images (He et al., 2022): most patches are hidden, and predicted.

The encoder is the ViT of ``mimex.nn.vit``. It sees the visible patches only, so that hiding 75 % of
them makes training cheap. The decoder is small, and is not needed afterwards.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from mimex.nn.networks import as_batch
from mimex.nn.transformer import blocks, init_linear, sinusoidal_positions
from mimex.nn.vit import ViT

FLAT = 1e-2
"""Added to the variance of a patch (of 1 over all pixels of ImageNet) where targets are normalized.
It is that of noise of 6 gray levels: patches of a single color, which simulators draw, otherwise
have targets that are nothing but camera noise."""


class MAE(nn.Module):
    """Predicts hidden patches of images from visible ones.

    Below, B is the batch, N the patches of an image, V the visible ones, C and D the token widths
    of encoder and decoder, and P the colors of a patch's pixels.

    Args:
        encoder: The network that is pretrained; gets new weights.
        width: Token width of the decoder.
        depth: Transformer blocks of the decoder.
        heads: Attention heads of the decoder.
    """

    decoder_positions: Tensor

    def __init__(self, encoder: ViT, *, width: int = 96, depth: int = 2, heads: int = 3) -> None:
        super().__init__()
        self.encoder = encoder
        self.patch = encoder.patch_embed.proj.kernel_size[0]
        side = encoder.image_size // self.patch
        self.patches = side**2
        self.decoder_embed = nn.Linear(encoder.features, width)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, width))
        self.decoder_positions = nn.Buffer(grid_positions(side, width), persistent=False)
        self.decoder_blocks = blocks(depth, width, heads, 4.0)
        self.decoder_norm = nn.LayerNorm(width, eps=1e-6)
        self.decoder_pred = nn.Linear(width, 3 * self.patch**2)
        self.apply(init_linear)
        nn.init.xavier_uniform_(encoder.patch_embed.proj.weight.view(encoder.features, -1))
        nn.init.normal_(self.mask_token, std=0.02)
        with torch.no_grad():  # fixed, as in MAE
            encoder.pos_embed.zero_()[:, 1:] = grid_positions(side, encoder.features)
        encoder.pos_embed.requires_grad_(False)

    def forward(self, images: Tensor, visible: Tensor) -> Tensor:
        """Predicts the normalized pixels of all patches, visible ones included.

        Args:
            images: ``(B, 3, H, W)`` uint8.
            visible: ``(B, V)`` indices of the patches that are seen.

        Returns:
            ``(B, N, P)``.
        """
        encoder, B = self.encoder, len(images)
        x = (as_batch(images, encoder.image_size) - encoder.mean) / encoder.std
        x = encoder.patch_embed(x) + encoder.pos_embed[:, 1:]  # (B, N, C)
        x = x.gather(1, visible[:, :, None].expand(-1, -1, x.shape[2]))  # (B, V, C)
        cls_token = encoder.cls_token + encoder.pos_embed[:, :1]
        x = torch.cat([cls_token.expand(B, -1, -1), x], 1)  # (B, 1 + V, C)
        for block in encoder.blocks:
            x = block(x)

        x = self.decoder_embed(encoder.norm(x))  # (B, 1 + V, D)
        tokens = self.mask_token.expand(B, self.patches, -1)  # (B, N, D)
        tokens = tokens.scatter(1, visible[:, :, None].expand(-1, -1, x.shape[2]), x[:, 1:])
        x = torch.cat([x[:, :1], tokens + self.decoder_positions], 1)  # (B, 1 + N, D)
        for block in self.decoder_blocks:
            x = block(x)
        predicted: Tensor = self.decoder_pred(self.decoder_norm(x[:, 1:]))
        return predicted

    def loss(self, images: Tensor, visible: Tensor) -> Tensor:
        """The squared error on normalized pixels, averaged over hidden patches, of each image.

        Args:
            images: ``(B, 3, H, W)`` uint8.
            visible: ``(B, V)`` indices of the patches that are seen.

        Returns:
            ``(B,)``.
        """
        target, _, _ = self.targets(images)
        errors = (self(images, visible) - target).square().mean(2)  # (B, N)
        hidden = torch.ones_like(errors).scatter(1, visible, 0.0)  # (B, N)
        losses: Tensor = (errors * hidden).sum(1) / hidden.sum(1)
        return losses

    def targets(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pixels ``(B, N, P)`` normalized per patch, their means and stds ``(B, N, 1)``."""
        x = (as_batch(images, self.encoder.image_size) - self.encoder.mean) / self.encoder.std
        pixels = F.unfold(x, self.patch, stride=self.patch).transpose(1, 2)  # (B, N, P)
        mean = pixels.mean(2, keepdim=True)
        std = (pixels.var(2, keepdim=True) + FLAT).sqrt()
        return (pixels - mean) / std, mean, std

    @torch.no_grad()
    def reconstruct(self, images: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """Images with gray in place of hidden patches, and with predictions in their place.

        The mean and std of a hidden patch, which the network does not predict, are the true ones.

        Args:
            images: ``(B, 3, H, W)`` uint8.
            visible: ``(B, V)`` indices of the patches that are seen.

        Returns:
            Two tensors ``(B, 3, H, W)`` uint8.
        """
        target, mean, std = self.targets(images)
        seen = torch.zeros_like(mean).scatter(1, visible[:, :, None], 1.0)  # (B, N, 1)
        true, predicted = target * std + mean, self(images, visible) * std + mean
        return self._images(true * seen), self._images(true * seen + predicted * (1 - seen))

    def _images(self, pixels: Tensor) -> Tensor:
        """Patches ``(B, N, P)`` as images ``(B, 3, H, W)`` of bytes."""
        size = self.encoder.image_size
        x = F.fold(pixels.transpose(1, 2), (size, size), self.patch, stride=self.patch)
        return (x * self.encoder.std + self.encoder.mean).round().clip(0, 255).byte()


def draw_visible(count: int, patches: int, mask_ratio: float, generator: Generator) -> Tensor:
    """Draws the patches that are seen of each image.

    Args:
        count: Images, B.
        patches: Patches of an image, N.
        mask_ratio: Share of the patches that are hidden.
        generator: Draws them.

    Returns:
        Indices ``(B, V)``, V at least 1 and less than N.
    """
    visible = min(max(round(patches * (1 - mask_ratio)), 1), patches - 1)
    return torch.rand(count, patches, generator=generator).argsort(1)[:, :visible]


def grid_positions(side: int, width: int) -> Tensor:
    """Positions ``(side * side, width)`` of patches: half of the width for rows, half columns."""
    along = sinusoidal_positions(side, width // 2)  # (side, width / 2)
    rows = along[:, None].expand(side, side, -1)
    return torch.cat([rows, rows.transpose(0, 1)], 2).flatten(0, 1)


def learning_rate(peak: float, progress: float, warmup: float = 0.05) -> float:
    """Linear warm-up to the peak, then half a cosine to 0 (He et al., 2022).

    Args:
        peak: The greatest learning rate.
        progress: Share of the training so far.
        warmup: Share of the training that the warm-up takes.
    """
    if progress < warmup:
        return peak * progress / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))
