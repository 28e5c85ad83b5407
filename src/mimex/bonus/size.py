"""Sizes of the masked autoencoder: the paper's, the released code's, and our default."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class AutoencoderSize:
    """Size of the model; the defaults are the paper's.

    Feature masking has no encoder: ``width``, ``depth``, ``heads`` and ``class_token`` are for
    time masking.
    """

    width: int = 128
    depth: int = 4
    heads: int = 4
    decoder_width: int = 64
    decoder_depth: int = 1
    decoder_heads: int = 2
    mlp_ratio: float = 4.0
    class_token: bool = False  # a learned token in the encoder, as in the released code

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "class_token" and not 0 < value < math.inf:
                raise ValueError(f"{name}={value} must be positive.")
        for part in ("", "decoder_"):
            width, heads = getattr(self, f"{part}width"), getattr(self, f"{part}heads")
            if width % heads:
                raise ValueError(f"{part}width={width} is not a multiple of {part}heads={heads}.")


PAPER = AutoencoderSize()
"""The paper's model."""

RELEASED = AutoencoderSize(class_token=True)
"""The model of the released code."""

LARGER = AutoencoderSize(decoder_width=128, decoder_depth=2, decoder_heads=4)
"""The paper's larger decoder: width, depth and heads doubled."""

COMPACT = AutoencoderSize(width=64, depth=2, decoder_width=32, decoder_heads=1, mlp_ratio=2.0)
"""The default of MIMEx: a quarter of the paper's cost (benchmarks/results/price.md)."""
