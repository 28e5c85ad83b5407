"""How big the autoencoder is."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class AutoencoderSize:
    """Widths and depths of the autoencoder; the defaults are the paper's."""

    width: int = 128
    depth: int = 4
    heads: int = 4
    decoder_width: int = 64
    decoder_depth: int = 1
    decoder_heads: int = 2
    mlp_ratio: float = 4.0
    class_token: bool = False  # a learned token beside the visible ones, as the released code has

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "class_token" and not 0 < value < math.inf:
                raise ValueError(f"{name}={value} must be positive.")


RELEASED = AutoencoderSize(class_token=True)
"""The released code's model."""

LARGER = AutoencoderSize(decoder_width=128, decoder_depth=2, decoder_heads=4)
"""The paper's larger decoder: width, depth and heads doubled."""
