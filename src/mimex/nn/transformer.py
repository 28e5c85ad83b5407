"""Pre-norm transformer blocks with timm's parameter names, quick on sequences of a few tokens.

And the layer behind them, a prediction and its error at once, which keeps little memory.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHORT_SEQUENCE = 16
"""Up to this many tokens plain batched products are used: at six tokens they are as fast as the
fused kernel, with no start-up for each sequence."""


EXCLUDED = -1e9
"""Score of a padded key; finite, so that a row of nothing but padding gives numbers, not NaN."""


def key_bias_of(real: Tensor) -> Tensor | None:
    """What to add to attention scores so that only real tokens ``(R, S)`` are looked at."""
    return None if bool(real.all()) else torch.where(real, 0.0, EXCLUDED)


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
    """Multi-head self-attention.

    Args:
        width: Of a token.
        heads: Among which the width is shared out.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, key_bias: Tensor | None, queries: int) -> Tensor:
        """What the leading ``queries`` tokens of ``(B, L, C)`` gather from all of them."""
        (_, length, width), (weight, bias) = x.shape, (self.qkv.weight, self.qkv.bias)
        if length == 1 and key_bias is None:  # a token alone attends to itself, whatever q and k
            alone: Tensor = self.proj(F.linear(x, weight[2 * width :], bias[2 * width :]))
            return alone
        if queries == length:
            q, k, v = self.qkv(x).chunk(3, dim=-1)
        else:  # queries of the leading tokens only; keys and values of all
            q = F.linear(x[:, :queries], weight[:width], bias[:width])
            k, v = F.linear(x, weight[width:], bias[width:]).chunk(2, dim=-1)
        q, k, v = (part.unflatten(2, (self.heads, -1)) for part in (q, k, v))
        mixed: Tensor = self.proj(attend(q, k, v, key_bias))
        return mixed


class Block(nn.Module):
    """Attention, then a perceptron, each on the normalised input and added to it.

    Args:
        width: Of a token.
        heads: Of the attention.
        mlp_ratio: Of the perceptron's hidden width to the token's.
        eps: Of the layer norms.
    """

    def __init__(self, width: int, heads: int, mlp_ratio: float = 4.0, eps: float = 1e-6) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width={width} is not a multiple of heads={heads}.")
        hidden = int(width * mlp_ratio)
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, hidden), "fc2": nn.Linear(hidden, width)})

    def forward(
        self, x: Tensor, key_bias: Tensor | None = None, queries: int | None = None
    ) -> Tensor:
        """Transforms ``(B, L, C)``; with ``queries`` only the leading tokens are computed."""
        wanted = x.shape[1] if queries is None else queries
        x = x[:, :wanted] + self.attn(self.norm1(x), key_bias, wanted)
        added: Tensor = self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x))))
        return x + added


def run(
    blocks: nn.ModuleList, x: Tensor, key_bias: Tensor | None = None, queries: int | None = None
) -> Tensor:
    """Blocks one after another on ``(B, L, C)``, of the last one leading tokens only."""
    for depth, block in enumerate(blocks, 1):
        x = block(x, key_bias, queries if depth == len(blocks) else None)
    return x


def sinusoidal_positions(length: int, width: int) -> Tensor:
    """Fixed positions ``(length, width)``: sine and cosine interleaved, wavelengths to 10,000."""
    if width % 2:
        raise ValueError(f"width={width} must be even: half sines, half cosines.")
    angles = torch.arange(length, dtype=torch.float64)[:, None] * 10_000.0 ** (
        -torch.arange(0, width, 2, dtype=torch.float64) / width
    )
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


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
