"""Pre-norm transformer blocks with timm's parameter names, quick on sequences of a few tokens.

The arithmetic is functions of plain tensors, which ``without_lock`` makes TorchScript of: blocks
that follow one another are one call, and threads that run them do not wait for Python's lock.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mimex.nn.parallel import without_lock

SHORT_SEQUENCE = 16
"""Up to this many tokens plain batched products are used: at six tokens they are as fast as the
fused kernel, with no start-up for each sequence."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_bias: Tensor | None = None,
    short: int = SHORT_SEQUENCE,
) -> Tensor:
    """Scaled dot-product attention.

    Args:
        q: ``(B, Q, H, d)`` queries.
        k: ``(B, S, H, d)`` keys.
        v: ``(B, S, H, d)`` values.
        key_bias: ``(B, S)`` added to the scores of each key; very negative hides the key.
        short: Up to so many keys by plain products.

    Returns:
        ``(B, Q, H * d)``.
    """
    if k.shape[1] == 2 and key_bias is None:
        return _attend_to_two(q, k, v)
    bias = None if key_bias is None else key_bias[:, None, None, :]  # (B, 1, 1, S)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, ., d)
    if k.shape[2] > short:
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


def _attention(
    x: Tensor, p: list[Tensor], heads: int, key_bias: Tensor | None, queries: int
) -> Tensor:
    """Multi-head self-attention of the leading tokens; ``p`` is weight and bias of qkv and proj."""
    batch, length, width = x.shape
    if length == 1 and key_bias is None:  # a token alone attends to itself, whatever q and k
        return F.linear(F.linear(x, p[0][2 * width :], p[1][2 * width :]), p[2], p[3])
    each = width // heads
    if queries == length:
        q, k, v = F.linear(x, p[0], p[1]).chunk(3, dim=-1)
    else:  # queries of the leading tokens only; keys and values of all
        q = F.linear(x[:, :queries], p[0][:width], p[1][:width])
        k, v = F.linear(x, p[0][width:], p[1][width:]).chunk(2, dim=-1)
    q = q.view(batch, queries, heads, each)
    k, v = k.view(batch, length, heads, each), v.view(batch, length, heads, each)
    mixed = attend(q, k, v, key_bias)
    return F.linear(mixed, p[2], p[3])


def _run(
    x: Tensor,
    blocks: list[list[Tensor]],
    heads: int,
    eps: float,
    key_bias: Tensor | None,
    queries: int,
) -> Tensor:
    """Blocks one after another, of the last of which only leading tokens are computed."""
    for depth, p in enumerate(blocks):
        wanted = queries if depth == len(blocks) - 1 else x.shape[1]
        normal = F.layer_norm(x, x.shape[2:], p[0], p[1], eps)
        y = x if wanted == x.shape[1] else x[:, :wanted]
        y = y + _attention(normal, p[2:6], heads, key_bias, wanted)
        normal = F.layer_norm(y, x.shape[2:], p[6], p[7], eps)
        x = y + F.linear(F.gelu(F.linear(normal, p[8], p[9])), p[10], p[11])
    return x


_run_without_lock = without_lock(_run)


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
        self.heads, self.eps = heads, eps
        hidden = int(width * mlp_ratio)
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.attn = nn.ModuleDict(
            {"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)}
        )
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, hidden), "fc2": nn.Linear(hidden, width)})

    def forward(
        self, x: Tensor, key_bias: Tensor | None = None, queries: int | None = None
    ) -> Tensor:
        """Transforms ``(B, L, C)``; with ``queries`` only the leading tokens are computed."""
        wanted = x.shape[1] if queries is None else queries
        parameters: list[Tensor] = list(self.parameters())
        return _run_without_lock(x, [parameters], self.heads, self.eps, key_bias, wanted)


def run(
    blocks: nn.ModuleList, x: Tensor, key_bias: Tensor | None = None, queries: int | None = None
) -> Tensor:
    """Blocks of one shape, one after another, on ``(B, L, C)``; see ``Block.forward``."""
    wanted = x.shape[1] if queries is None else queries
    first = blocks[0]
    assert isinstance(first, Block)
    parameters: list[list[Tensor]] = [list(block.parameters()) for block in blocks]
    return _run_without_lock(x, parameters, first.heads, first.eps, key_bias, wanted)


def sinusoidal_positions(length: int, width: int) -> Tensor:
    """Fixed positions ``(length, width)``: sine and cosine interleaved, wavelengths to 10,000."""
    if width % 2:
        raise ValueError(f"width={width} must be even: half sines, half cosines.")
    angles = torch.arange(length, dtype=torch.float64)[:, None] * 10_000.0 ** (
        -torch.arange(0, width, 2, dtype=torch.float64) / width
    )
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()
