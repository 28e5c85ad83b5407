"""One code for NumPy's arrays and PyTorch's tensors.

Tasks use what both call by the same name, and ask `namespace` where a function is needed. Nothing
here loads PyTorch before somebody hands over a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def namespace(array: Any) -> Any:
    """Return the module whose functions take this array: numpy, or torch for a tensor."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def to_numpy(array: Any) -> Any:
    """Return an array, or each of a dict, as NumPy's: itself, or a tensor's numbers.

    Where a tensor is in the CPU's memory, that is shared, not copied.
    """
    if isinstance(array, np.ndarray):
        return array
    if isinstance(array, dict):
        return {name: to_numpy(part) for name, part in array.items()}
    return array.cpu().numpy()


def copied(array: Any) -> Any:
    """Return a copy of the same kind, on the same device."""
    return array.copy() if isinstance(array, np.ndarray) else array.clone()


def overwrite(array: Any, values: Any) -> None:
    """Write NumPy's numbers over all of an array of either kind."""
    if isinstance(array, np.ndarray):
        array[:] = values
    else:
        array.copy_(namespace(array).from_numpy(np.asarray(values)))


def rows_of(mask: Any) -> NDArray[np.int32]:
    """Return where a mask (N,) of either kind is true."""
    rows: NDArray[np.int32] = np.flatnonzero(to_numpy(mask)).astype(np.int32)
    return rows


def side_by_side(blocks: Sequence[Any]) -> Any:
    """Return blocks (rows, ...) as the columns of one float32 array (rows, numbers)."""
    if isinstance(blocks[0], np.ndarray):
        return np.concatenate(blocks, axis=1, dtype=np.float32, casting="same_kind")
    return namespace(blocks[0]).cat(blocks, 1).float()
