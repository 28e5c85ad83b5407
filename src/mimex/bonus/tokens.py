"""Which tokens of a window go through the network, in arrays without gaps."""

from __future__ import annotations

import torch
from torch import Tensor

EXCLUDED = -1e9
"""Score of a padded key; finite, so that a row of nothing but padding gives numbers, not NaN."""


def places(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The places of True in each row ``(R, L)``: ``(R, most)``, and which of them are real."""
    counts = chosen.sum(1)
    most = int(counts.max()) if len(counts) else 0
    if int(counts.sum()) == most * len(counts):  # the same number in every row
        return chosen.nonzero()[:, 1].view(len(chosen), most), chosen.new_ones(len(chosen), most)
    first = chosen.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
    return first, torch.arange(most, device=chosen.device) < counts.unsqueeze(1)


def key_bias_of(real: Tensor) -> Tensor | None:
    """What to add to attention scores so that only real tokens ``(R, S)`` are looked at."""
    return None if bool(real.all()) else torch.where(real, 0.0, EXCLUDED)
