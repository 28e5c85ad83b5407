"""Chunks of a batch in parallel, on threads of this process.

PyTorch splits every single operation over its threads. At the sizes of this package (a thousand
rows, a hundred wide) synchronization then costs as much as the computation. Here each thread takes
a whole chunk through the whole network instead. Results do not depend on the number of threads.

By default as many threads are used as PyTorch has; see ``use_workers``.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import torch
from torch import Tensor

Rows = TypeVar("Rows", Tensor, range, list[Any])
Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNKS_AT_ONCE = 8
"""Chunks whose gradients are held before they are summed, which bounds the memory."""

_workers: int | None = None  # set by use_workers
_pools: dict[int, ThreadPoolExecutor] = {}  # by number of threads
_local = threading.local()  # .is_worker in the threads of a pool

if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pools.clear)


def available_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def use_workers(count: int | None) -> None:
    """Sets the number of worker threads; single PyTorch operations then use one thread.

    Args:
        count: Threads; None for as many as PyTorch has, which is the default.
    """
    global _workers
    if count is not None:
        if count < 1:
            raise ValueError(f"count={count} must be at least 1, or None.")
        torch.set_num_threads(1)
    _workers = count


def parallel_map(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Applies a function to all items on the worker threads; results are in order.

    PyTorch's gradient mode is per thread: the function must set its own.
    """
    threads = torch.get_num_threads()
    workers = min(_workers or threads, len(items))
    if workers < 2 or getattr(_local, "is_worker", False):
        return [function(item) for item in items]
    if workers not in _pools:
        _pools[workers] = ThreadPoolExecutor(workers, "mimex", _mark_worker)
    torch.set_num_threads(1)
    try:
        jobs = [_pools[workers].submit(function, item) for item in items]
        try:
            return [job.result() for job in jobs]
        finally:
            wait([job for job in jobs if not job.cancel()])
    finally:
        torch.set_num_threads(threads)


def _mark_worker() -> None:
    _local.is_worker = True


def split_rows(rows: Rows, size: int) -> list[Rows]:
    """Splits rows into chunks of ``size``, of which the last may be shorter."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def chunk_slices(count: int, size: int) -> list[slice]:
    """Slices that split ``count`` rows into chunks of up to ``size``."""
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def summed_gradients(
    loss: Callable[[Item], tuple[Tensor, Result]],
    chunks: Sequence[Item],
    parameters: Sequence[Tensor],
) -> tuple[list[Result], list[Tensor | None]]:
    """Gradients of a loss that is a sum over chunks, computed on the worker threads.

    Chunks are summed in order: the result is bitwise the same for any number of threads.

    Args:
        loss: Returns the loss of a chunk, and any further result.
        chunks: The chunks of a batch.
        parameters: The gradient is taken with respect to these.

    Returns:
        The further results of ``loss``, and the gradient of each parameter; None for a parameter
        that no loss depends on.
    """

    def work(chunk: Item) -> tuple[Result, tuple[Tensor | None, ...]]:
        with torch.enable_grad():
            value, result = loss(chunk)
            if not value.requires_grad:
                return result, (None,) * len(parameters)
            return result, torch.autograd.grad(value, parameters, allow_unused=True)

    results: list[Result] = []
    total: list[Tensor | None] = [None] * len(parameters)
    for group in split_rows(list(chunks), CHUNKS_AT_ONCE):
        for result, gradients in parallel_map(work, group):
            results.append(result)
            for i, gradient in enumerate(gradients):
                before = total[i]
                if before is not None and gradient is not None:
                    before.add_(gradient)
                elif gradient is not None:
                    total[i] = gradient
    return results, total
