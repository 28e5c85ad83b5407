"""Work on slices of a batch in parallel, on threads of this process.

PyTorch splits every single operation over its threads, and at the sizes of this package (a
thousand rows, a hundred wide) waiting for one another costs as much as the work. Here each thread
takes a whole slice through the whole network instead. Results do not depend on the number of
threads: slices are the same, and their results come back in order.

Unless told otherwise by ``use_workers``, as many threads are used as PyTorch has, and PyTorch gets
them back after each call.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import torch
from torch import Tensor

Rows = TypeVar("Rows", Tensor, range, list[Any])
Item = TypeVar("Item")
Result = TypeVar("Result")

_chosen: int | None = None  # workers, where use_workers was called
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def use_workers(count: int | None) -> None:
    """Lets ``in_order`` always work on so many threads; single operations then stay on one thread.

    A training loop of one's own gains from it, since nothing is handed to and fro.

    Args:
        count: Threads; 1 works in the calling thread alone, None on as many as PyTorch has, as is
            the case at the start.
    """
    global _chosen
    if count is not None:
        if count < 1:
            raise ValueError(f"count={count} must be at least 1, or None.")
        torch.set_num_threads(1)
    _chosen = count


def in_order(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The function's results for all items, in their order.

    PyTorch's gradient mode belongs to a thread: the function must set its own.
    """
    threads = torch.get_num_threads()
    workers = min(_chosen or threads, len(items))
    if workers < 2 or _working.here:
        return [function(item) for item in items]
    results: dict[int, Result] = {}
    todo = iter(enumerate(items))

    def work() -> None:
        _working.here = True
        try:
            for place, item in todo:
                results[place] = function(item)
        finally:
            _working.here = False
            deque(todo, maxlen=0)  # after an error there is nothing more to do

    torch.set_num_threads(1)
    try:
        others = [_helpers(workers - 1).submit(work) for _ in range(workers - 1)]
        try:
            work()
        finally:
            wait(others)
        for other in others:
            other.result()
    finally:
        torch.set_num_threads(threads)
    return [results[place] for place in range(len(items))]


class _Working(threading.local):
    """Whether this thread is at work on items of ``in_order``."""

    here = False


_working = _Working()


def _helpers(count: int) -> ThreadPoolExecutor:
    """The threads beside the calling one, which are kept from call to call."""
    global _pool, _pool_size
    if _pool is None or _pool_size != count:
        if _pool is not None:
            _pool.shutdown()
        _pool = ThreadPoolExecutor(count, "mimex")
        _pool_size = count
    return _pool


def _forget_workers() -> None:
    """Threads do not follow into a forked process; it makes its own."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


def pieces(rows: Rows, size: int) -> list[Rows]:
    """Rows in pieces of ``size``, of which the last may be shorter; none of no rows."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def cuts(size: int, most: int) -> list[slice]:
    """Slices of up to ``most`` that follow each other, up to ``size``."""
    return [slice(start, min(start + most, size)) for start in range(0, size, most)]


def summed(parts: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
    """Sums over parts in their order: bit for bit the same on any number of threads."""
    total = list(parts[0])
    for part in parts[1:]:
        torch._foreach_add_(total, part)
    return total


CHUNKS_AT_ONCE = 8
"""Chunks whose gradients may wait to be summed: bounds the memory."""


def summed_gradients(
    loss: Callable[[Item], tuple[Tensor, Result]],
    chunks: Sequence[Item],
    parameters: Sequence[Tensor],
) -> tuple[list[Result], list[Tensor | None]]:
    """Gradients of a loss that is a sum over chunks, computed on the worker threads.

    Chunks are summed in order: the result is bit for bit the same for any number of threads.

    Args:
        loss: Returns the loss of a chunk, and anything that is to be kept with it.
        chunks: The parts of a batch.
        parameters: The gradient is taken with respect to these.

    Returns:
        What ``loss`` returned beside the losses, and the gradient of each parameter; None for a
        parameter that no loss depends on.
    """

    def work(chunk: Item) -> tuple[Result, tuple[Tensor | None, ...]]:
        with torch.enable_grad():
            value, kept = loss(chunk)
            if not value.requires_grad:
                return kept, (None,) * len(parameters)
            return kept, torch.autograd.grad(value, parameters, allow_unused=True)

    results: list[Result] = []
    total: list[Tensor | None] = [None] * len(parameters)
    for group in pieces(list(chunks), CHUNKS_AT_ONCE):
        for kept, gradients in in_order(work, group):
            results.append(kept)
            for i, gradient in enumerate(gradients):
                before = total[i]
                if before is not None and gradient is not None:
                    before.add_(gradient)
                elif gradient is not None:
                    total[i] = gradient
    return results, total
