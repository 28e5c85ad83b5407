"""Large batches in small pieces, whose gradients add up to those of the whole."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

PIECE_NUMBERS = 1 << 20
"""Windows are worked through in pieces of about this many features (4 MB), so that what the
network makes of a piece stays in cache and no fresh memory has to be cleared for it."""

PIECE_WINDOWS = (128, 256)
"""The fewest and most windows of such a piece, on a CPU."""

PIECES_AT_ONCE = 8
"""Pieces whose gradients may wait to be added up."""

Rows = slice | Tensor
Gradients = tuple[Tensor | None, ...]
Piece = TypeVar("Piece")


def pieces(rows: Rows, numbers: int, device: torch.device) -> list[Rows]:
    """Rows in pieces of one size that suit the device; the same ones on any number of threads.

    Args:
        rows: A slice from 0, or indices.
        numbers: Numbers that each row stands for, over all its masks.
        device: Where the work is done; only a CPU needs small pieces.
    """
    total = rows.stop if isinstance(rows, slice) else len(rows)
    size = max(total, 1)
    if device.type == "cpu":
        fewest, most = PIECE_WINDOWS
        size = min(max(PIECE_NUMBERS // numbers, fewest), most)
    count = -(-total // size)
    if count > 1:
        count += count % 2  # two threads then end together
    cuts = [slice(i * total // count, (i + 1) * total // count) for i in range(count)]
    return [cut if isinstance(rows, slice) else rows[cut] for cut in cuts]


def groups(all_pieces: list[Piece]) -> list[list[Piece]]:
    """Pieces in groups, one to be worked through before the next."""
    starts = range(0, len(all_pieces), PIECES_AT_ONCE)
    return [all_pieces[start : start + PIECES_AT_ONCE] for start in starts]


def add_gradients(parameters: tuple[Tensor, ...], gradients: Gradients) -> None:
    """Adds a piece's gradients to those before it; none where it had nothing to learn."""
    for parameter, gradient in zip(parameters, gradients, strict=bool(gradients)):
        if gradient is not None and parameter.grad is not None:
            parameter.grad += gradient
        elif gradient is not None:
            parameter.grad = gradient
