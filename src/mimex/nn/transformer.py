"""A pre-norm transformer block with timm's parameter names, quick on sequences of a few tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHORT_SEQUENCE = 16
"""Up to this many tokens plain batched products are used: at six tokens they are as fast as the
fused kernel, with no start-up for each sequence."""


def attend(q: Tensor, k: Tensor, v: Tensor, key_bias: Tensor | None = None) -> Tensor:
    """Scaled dot-product attention.

    Args:
        q: ``(B, Q, H, d)`` queries.
        k: ``(B, S, H, d)`` keys.
        v: ``(B, S, H, d)`` values.
        key_bias: ``(B, S)`` added to the scores of each key; very negative hides the key.

    Returns:
        ``(B, Q, H * d)``.
    """
    if k.shape[1] == 2 and key_bias is None:
        return _attend_to_two(q, k, v)
    bias = None if key_bias is None else key_bias[:, None, None, :]  # (B, 1, 1, S)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, ., d)
    if k.shape[2] > SHORT_SEQUENCE:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    else:
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)  # (B, H, Q, S)
        mixed = (scores if bias is None else scores + bias).softmax(-1) @ v
    return mixed.transpose(1, 2).flatten(2)


def _attend_to_two(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention to two keys: a softmax over two is a sigmoid of their difference.

    This is the encoder's case at the paper's settings (one visible step and the class token),
    where batched products of 2 x 2 matrices cost several times as much.
    """
    (k0, k1), (v0, v1) = k.unbind(1), v.unbind(1)  # (B, H, d)
    difference = ((k0 - k1) * q.shape[-1] ** -0.5).unsqueeze(1)
    weight = (q * difference).sum(-1, keepdim=True).sigmoid()  # (B, Q, H, 1) of the first key
    return torch.addcmul(v1.unsqueeze(1), weight, (v0 - v1).unsqueeze(1)).flatten(2)


class Attention(nn.Module):
    """Multi-head self-attention: ``qkv`` and ``proj`` as timm names them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, key_bias: Tensor | None, queries: int | None) -> Tensor:
        batch, length, width = x.shape
        if length == 1 and key_bias is None:  # a token alone attends to itself, whatever q and k
            weight, bias = self.qkv.weight[2 * width :], self.qkv.bias[2 * width :]
            alone: Tensor = self.proj(F.linear(x, weight, bias))
            return alone
        if queries is None or queries == length:
            q, k, v = self.qkv(x).view(batch, length, 3, self.heads, self.head_width).unbind(2)
        else:  # queries of the leading tokens only; keys and values of all
            weight, bias = self.qkv.weight, self.qkv.bias
            q = F.linear(x[:, :queries], weight[:width], bias[:width])
            q = q.view(batch, queries, self.heads, self.head_width)
            kv = F.linear(x, weight[width:], bias[width:])
            k, v = kv.view(batch, length, 2, self.heads, self.head_width).unbind(2)
        mixed: Tensor = self.proj(attend(q, k, v, key_bias))
        return mixed


class MLP(nn.Module):
    """Two layers with GELU between: ``fc1`` and ``fc2`` as timm names them."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return y


class Block(nn.Module):
    """Attention, then MLP, each on the normalised input and added to it."""

    def __init__(self, width: int, heads: int, mlp_ratio: float = 4.0, eps: float = 1e-6) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width={width} is not a multiple of heads={heads}.")
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.mlp = MLP(width, int(width * mlp_ratio))

    def forward(
        self, x: Tensor, key_bias: Tensor | None = None, queries: int | None = None
    ) -> Tensor:
        """Transforms ``(B, L, C)``; with ``queries`` only the leading tokens are computed."""
        y = x if queries is None else x[:, :queries]
        y = y + self.attn(self.norm1(x), key_bias, queries)
        mixed: Tensor = y + self.mlp(self.norm2(y))
        return mixed


def sinusoidal_positions(length: int, width: int) -> Tensor:
    """Fixed positions ``(length, width)``: sine and cosine interleaved, wavelengths to 10,000."""
    if width % 2:
        raise ValueError(f"width={width} must be even: half sines, half cosines.")
    angles = torch.arange(length, dtype=torch.float64)[:, None] * 10_000.0 ** (
        -torch.arange(0, width, 2, dtype=torch.float64) / width
    )
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()
