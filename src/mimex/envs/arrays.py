"""Helpers for code that runs on NumPy arrays and PyTorch tensors alike.

Tasks use the methods that both have under the same name, and `namespace` for functions. PyTorch is
imported only when a tensor is passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def namespace(array: Any) -> Any:
    """Return numpy for an array and torch for a tensor."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def to_numpy(array: Any) -> Any:
    """Convert a tensor, or a dict of tensors, to NumPy; arrays are returned as they are.

    A tensor on the CPU shares its memory with the result.
    """
    if isinstance(array, np.ndarray):
        return array
    if isinstance(array, dict):
        return {name: to_numpy(part) for name, part in array.items()}
    return array.cpu().numpy()


def copied(array: Any) -> Any:
    """Return a copy of the same type, on the same device."""
    return array.copy() if isinstance(array, np.ndarray) else array.clone()


def overwrite(array: Any, values: Any) -> None:
    """Copy NumPy values into an array or tensor in place."""
    if isinstance(array, np.ndarray):
        array[:] = values
    else:
        array.copy_(namespace(array).from_numpy(np.asarray(values)))


def rows_of(mask: Any) -> NDArray[np.int32]:
    """Return the indices where a mask (N,), array or tensor, is true."""
    rows: NDArray[np.int32] = np.flatnonzero(to_numpy(mask)).astype(np.int32)
    return rows


def concat_columns(blocks: Sequence[Any]) -> Any:
    """Concatenate blocks (rows, d_i) into one float32 array (rows, sum of d_i)."""
    if isinstance(blocks[0], np.ndarray):
        return np.concatenate(blocks, axis=1, dtype=np.float32, casting="same_kind")
    return namespace(blocks[0]).cat(blocks, 1).float()
