"""Work on slices of a batch side by side, on threads of this process.

PyTorch splits every single operation over its threads, and at the sizes of this package (a
thousand rows, a hundred wide) waiting for one another costs as much as the work. Here each thread
takes a whole slice through the whole network instead. Results do not depend on the number of
threads: slices are the same, and their results come back in order.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")
Result = TypeVar("Result")

# Numbers of M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD in malloc.h, and sizes in bytes.
_MALLOC_OPTIONS = {-1: 1 << 30, -2: 1 << 26, -3: 1 << 30}

_pool: ThreadPoolExecutor | None = None


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def keep_memory() -> None:
    """Lets the allocator of Linux keep what tensors free instead of handing it back each time.

    By default glibc returns arrays of a megabyte to the system, which then clears them page by
    page when the next one is made: measured at 10 % of PPO's update, 30 % on two threads.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other libraries have none
        if mallopt is not None:
            for option, size in _MALLOC_OPTIONS.items():
                mallopt(option, size)


def use_workers(count: int) -> None:
    """Lets ``in_order`` work on so many threads; single operations then stay on one thread.

    Args:
        count: Threads; 1 works in the calling thread alone, as is the case at the start.
    """
    global _pool
    if count < 1:
        raise ValueError(f"count={count} must be at least 1.")
    if _pool is not None:
        _pool.shutdown()
    _pool = ThreadPoolExecutor(count, "mimex") if count > 1 else None
    torch.set_num_threads(1)


def in_order(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The function's results for all items, in their order.

    PyTorch's gradient mode belongs to a thread: the function must set its own.
    """
    if _pool is None or len(items) < 2:
        return [function(item) for item in items]
    return list(_pool.map(function, items))


def pieces(rows: Tensor, size: int) -> list[Tensor]:
    """A tensor in pieces of ``size`` rows, of which the last may be shorter; none of no rows."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
