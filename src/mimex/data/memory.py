"""Large arrays: in memory if they fit, or in a file."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import torch
from torch import Tensor

SPARE = 0.9
"""The share of the free memory that one array may take; the rest is for everything else."""


def free_memory() -> int:
    """Bytes that this machine can still give out."""
    if sys.platform == "linux":
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def allocate(shape: tuple[int, ...], dtype: torch.dtype, file: Path | None = None) -> Tensor:
    """An array of zeros, in a file if one is given.

    Raises:
        ValueError: If it does not fit into memory; with the numbers, before any work is done.
    """
    count = math.prod(shape)
    size = count * dtype.itemsize
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        return torch.from_file(str(file), shared=True, size=count, dtype=dtype).view(shape)
    free = free_memory()
    if size > SPARE * free:
        raise ValueError(
            f"replay.capacity={shape[0]:,} observations of {size // shape[0]:,} bytes need "
            f"{size / 1e9:.1f} GB, but {free / 1e9:.1f} GB of memory are free: use a "
            f"replay.capacity of at most {int(SPARE * free * shape[0] / size):,}, or "
            "--replay.memory-mapped to keep them in a file."
        )
    return torch.zeros(shape, dtype=dtype)
