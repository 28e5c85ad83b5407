"""Data-parallel training over several processes, on ``torch.distributed``.

Every process has its share of the environments; weights and statistics are the same in all, because
gradients and measurements are averaged. With one process each operation is the identity. Only
tensors, bytes and JSON are exchanged.

All processes must call the same operations in the same order. If one has ended, the others raise
``LostProcessError``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

Result = TypeVar("Result")

TIMEOUT = timedelta(days=1)
"""Timeout of all operations: the other processes wait while the first evaluates. A process that has
ended is noticed at once."""


class LostProcessError(RuntimeError):
    """Another process of the run has ended."""


@dataclass(frozen=True)
class Rank:
    """Rank and number of processes, overall and on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


_this = Rank()


def rank_from_environment() -> Rank | None:
    """The rank set by torchrun; None without torchrun or with one process."""
    env = os.environ
    if not all(name in env for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return None
    rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
    local = int(env.get("LOCAL_RANK", rank)), int(env.get("LOCAL_WORLD_SIZE", size))
    return Rank(rank, size, *local) if size > 1 else None


def rank() -> int:
    """Rank of this process, from 0; rank 0 evaluates, logs and saves."""
    return _this.rank


def size() -> int:
    """Number of processes."""
    return _this.size


@contextmanager
def at(this: Rank) -> Iterator[None]:
    """Sets the rank of this process; operations need ``init`` first."""
    global _this
    before, _this = _this, this
    try:
        yield
    finally:
        _this = before
        if this.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def init(store: Any = None) -> None:
    """Connects to the other processes: gloo for CPU tensors, NCCL for CUDA tensors.

    Args:
        store: A PyTorch store for processes on one machine; None for torchrun's variables.
    """
    if store is not None and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # not reachable from other machines
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    rank, size = _this.rank, _this.size
    _collective(
        lambda: dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT
        )
    )


def mean(values: Tensor) -> Tensor:
    """The mean over all processes of a tensor of the same shape; bitwise equal in all."""
    if _this.size == 1:
        return values
    total = values.clone()
    _collective(lambda: dist.all_reduce(total))
    return total.div_(_this.size)


def all_gather(rows: Tensor, dim: int = 0) -> Tensor:
    """Concatenates tensors of the same shape along a dimension, in the order of ranks."""
    if _this.size == 1:
        return rows
    parts = [
        torch.empty_like(rows, memory_format=torch.contiguous_format) for _ in range(_this.size)
    ]
    _collective(lambda: dist.all_gather(parts, rows.contiguous()))
    return torch.cat(parts, dim)


def all_gather_bytes(content: bytes) -> list[bytes]:
    """The bytes of each process, in the order of ranks; of any lengths."""
    if _this.size == 1:
        return [content]
    lengths = all_gather(torch.tensor([len(content)])).tolist()
    padded = np.zeros((1, max(lengths) + 1), np.uint8)
    padded[0, : len(content)] = np.frombuffer(content, np.uint8)
    rows = all_gather(torch.from_numpy(padded)).numpy()
    return [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]


def broadcast_bytes(content: bytes = b"") -> bytes:
    """The bytes of rank 0, in all processes."""
    if _this.size == 1:
        return content
    buffer = np.zeros(int(all_gather(torch.tensor([len(content)]))[0]), np.uint8)
    if _this.rank == 0:
        buffer[:] = np.frombuffer(content, np.uint8)
    _collective(lambda: dist.broadcast(torch.from_numpy(buffer), src=0))
    return buffer.tobytes()


def all_gather_object(value: Any) -> list[Any]:
    """The JSON-serializable value of each process, in the order of ranks."""
    if _this.size == 1:
        return [value]
    return [json.loads(content) for content in all_gather_bytes(json.dumps(value).encode())]


def average_gradients(parameters: Sequence[Tensor], values: Tensor) -> Tensor:
    """Averages the gradients of parameters over all processes.

    A missing gradient counts as zeros, unless it is missing in all processes.

    Args:
        parameters: The same in all processes.
        values: ``(n,)``, averaged in the same operation.

    Returns:
        The averaged values.
    """
    if _this.size == 1:
        return values
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    present = torch.tensor([p.grad is not None for p in parameters]).to(values)
    flat = torch.cat([values, present, *(gradient.flatten() for gradient in gradients)])
    sizes = [len(values), len(present), *(p.numel() for p in parameters)]
    values, present, *means = torch.split(mean(flat), sizes)
    for parameter, has, gradient in zip(parameters, present.tolist(), means, strict=True):
        parameter.grad = gradient.view_as(parameter) if has else None
    return values


def _collective(operation: Callable[[], Result]) -> Result:
    try:
        return operation()
    except RuntimeError as error:
        why = re.sub(r"^\[[^]]*\] ", "", str(error).partition("\n")[0]).partition(". ")[0]
        raise LostProcessError(
            f"process {_this.rank} of {_this.size} has lost another one of its run ({why}): the "
            "last checkpoint is intact, and the same command continues from it."
        ) from error
