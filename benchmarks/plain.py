"""The published arithmetic, written the plain way: the baseline that ours is measured against.

Every step is embedded before the mask drops it, every position is decoded and predicted, masks
come one after the other, each with an optimizer step of its own, and Adam is PyTorch's default.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mimex.nn.transformer import sinusoidal_positions


class PlainBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.ModuleDict(
            {"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)}
        )
        self.mlp = nn.ModuleDict(
            {"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)}
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.attn["qkv"](self.norm1(x)).reshape(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1)
        x = x + self.attn["proj"]((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp["fc2"](nn.functional.gelu(self.mlp["fc1"](self.norm2(x))))


class PlainAutoencoder(nn.Module):
    """The published model: parameter names and loss are those of the released code.

    With ``class_token=False`` it is the same without that token, as ours is by default.
    """

    def __init__(self, feature_dim: int, length: int, class_token: bool = True) -> None:
        super().__init__()
        self.encoder_embed = nn.Linear(feature_dim, 128)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, 128)) if class_token else None
        self.blocks = nn.ModuleList(PlainBlock(128, 4) for _ in range(4))
        self.norm = nn.LayerNorm(128, eps=1e-6)
        self.decoder_embed = nn.Linear(128, 64)
        self.mask_token = nn.Parameter(0.02 * torch.randn(1, 1, 64))
        self.decoder_blocks = nn.ModuleList([PlainBlock(64, 2)])
        self.decoder_norm = nn.LayerNorm(64, eps=1e-6)
        self.decoder_pred = nn.Linear(64, feature_dim)
        self.positions = sinusoidal_positions(length, 128)
        self.decoder_positions = sinusoidal_positions(length, 64)

    def forward(self, x: Tensor, noise: Tensor, kept: int) -> Tensor:
        """The loss of each sequence ``(B,)``; the ``kept`` steps of least noise stay visible."""
        batch = len(x)
        shuffle = noise.argsort(1)
        restore = shuffle.argsort(1)
        mask = torch.ones_like(noise)
        mask[:, :kept] = 0
        mask = mask.gather(1, restore)
        y = self.encoder_embed(x) + self.positions
        y = y.gather(1, shuffle[:, :kept, None].expand(-1, -1, y.shape[2]))
        first = 0 if self.cls_token is None else 1  # tokens before the steps
        if self.cls_token is not None:
            y = torch.cat([self.cls_token.expand(batch, -1, -1), y], dim=1)
        for block in self.blocks:
            y = block(y)
        y = self.decoder_embed(self.norm(y))
        filled = torch.cat([y[:, first:], self.mask_token.expand(batch, x.shape[1] - kept, -1)], 1)
        filled = filled.gather(1, restore[:, :, None].expand(-1, -1, y.shape[2]))
        y = torch.cat([y[:, :first], filled + self.decoder_positions], dim=1)
        for block in self.decoder_blocks:
            y = block(y)
        prediction = self.decoder_pred(self.decoder_norm(y))[:, first:]
        loss = (prediction - x).square().mean(-1)
        return (loss * mask).sum(1) / mask.sum(1)


class PlainMIMEx:
    """Trains and scores with the plain model; ``chunk`` works in minibatches of that size."""

    def __init__(self, feature_dim: int, length: int, masks: int, class_token: bool = True) -> None:
        self.model = PlainAutoencoder(feature_dim, length, class_token)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.masks, self.kept = masks, max(1, int(length * (1 - 0.7) + 1e-6))

    def learn(self, features: Tensor) -> Tensor:
        rewards = torch.zeros(len(features))
        for _ in range(self.masks):
            losses = self.model(features, torch.rand(features.shape[:2]), self.kept)
            rewards += losses.detach() / self.masks
            self.optimizer.zero_grad()
            losses.mean().backward()
            self.optimizer.step()
        return rewards
