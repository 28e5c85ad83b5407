"""One run over many processes: which one this is, and the few operations in which all meet.

Every process has its share of the environments, and weights and statistics that are the same in
all: gradients are averaged, and whatever is measured is measured over all. With one process, as
everywhere but in ``mimex train``, each operation is the identity. Numbers, bytes and JSON are all
that is exchanged.

All processes must call the same operations in the same order. Where one has ended, the others
raise ``LostProcessError``.
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

PATIENCE = timedelta(days=1)
"""How long a process waits for the others: while the first evaluates, they have nothing to do. One
that has ended is noticed at once."""


class LostProcessError(RuntimeError):
    """Another process of the run has ended."""


@dataclass(frozen=True)
class Place:
    """Which process this is, of how many; and the same among those on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


_place = Place()


def place_by_environment() -> Place | None:
    """The place that torchrun gives; None where nobody has, or there is one process alone."""
    told = os.environ
    if not all(name in told for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return None
    rank, size = int(told["RANK"]), int(told["WORLD_SIZE"])
    local = int(told.get("LOCAL_RANK", rank)), int(told.get("LOCAL_WORLD_SIZE", size))
    return Place(rank, size, *local) if size > 1 else None


def rank() -> int:
    """Which process this is, from 0; the first one evaluates, logs and saves."""
    return _place.rank


def size() -> int:
    """How many processes there are."""
    return _place.size


@contextmanager
def at(place: Place) -> Iterator[None]:
    """In this block this process is one of several; they meet once ``meet`` was called."""
    global _place
    before, _place = _place, place
    try:
        yield
    finally:
        _place = before
        if place.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def meet(store: Any = None) -> None:
    """Connects with the other processes: over gloo, and over NCCL for what is on a GPU.

    Args:
        store: Of PyTorch, where those on one machine find each other; None where torchrun's
            variables say it.
    """
    if store is not None and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # nobody else is to hear of it
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    rank, size = _place.rank, _place.size
    _together(
        lambda: dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=PATIENCE
        )
    )


def mean(values: Tensor) -> Tensor:
    """The mean over all processes of an array of the same shape in each; the same bits in all."""
    if _place.size == 1:
        return values
    total = values.clone()
    _together(lambda: dist.all_reduce(total))
    return total.div_(_place.size)


def joined(rows: Tensor, dim: int = 0) -> Tensor:
    """Arrays of the same shape, one behind the other along a dimension, in the processes' order."""
    if _place.size == 1:
        return rows
    parts = [torch.empty_like(rows, memory_format=torch.contiguous_format) for _ in _ranks()]
    _together(lambda: dist.all_gather(parts, rows.contiguous()))
    return torch.cat(parts, dim)


def every_bytes(content: bytes) -> list[bytes]:
    """What each process gave, in their order; any length each."""
    if _place.size == 1:
        return [content]
    lengths = joined(torch.tensor([len(content)])).tolist()
    padded = np.zeros((1, max(lengths) + 1), np.uint8)
    padded[0, : len(content)] = np.frombuffer(content, np.uint8)
    rows = joined(torch.from_numpy(padded)).numpy()
    return [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]


def first_bytes(content: bytes = b"") -> bytes:
    """What the first process gave, in all of them."""
    if _place.size == 1:
        return content
    held = np.zeros(int(joined(torch.tensor([len(content)]))[0]), np.uint8)
    if _place.rank == 0:
        held[:] = np.frombuffer(content, np.uint8)
    _together(lambda: dist.broadcast(torch.from_numpy(held), src=0))
    return held.tobytes()


def every(value: Any) -> list[Any]:
    """What each process gave, in their order: anything that JSON can say."""
    if _place.size == 1:
        return [value]
    return [json.loads(content) for content in every_bytes(json.dumps(value).encode())]


def average_gradients(parameters: Sequence[Tensor], beside: Tensor) -> Tensor:
    """Averages the gradients of parameters over all processes.

    A parameter that has none in any process has none afterwards; elsewhere none counts as zeros.

    Args:
        parameters: The same in all processes.
        beside: ``(n,)`` numbers that are averaged with them.

    Returns:
        Their averages.
    """
    if _place.size == 1:
        return beside
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    there = torch.tensor([p.grad is not None for p in parameters]).to(beside)
    flat = torch.cat([beside, there, *(gradient.flatten() for gradient in gradients)])
    sizes = [len(beside), len(there), *(p.numel() for p in parameters)]
    beside, there, *means = torch.split(mean(flat), sizes)
    for parameter, has, gradient in zip(parameters, there.tolist(), means, strict=True):
        parameter.grad = gradient.view_as(parameter) if has else None
    return beside


def _ranks() -> range:
    return range(_place.size)


def _together(operation: Callable[[], Result]) -> Result:
    try:
        return operation()
    except RuntimeError as error:
        why = re.sub(r"^\[[^]]*\] ", "", str(error).partition("\n")[0]).partition(". ")[0]
        raise LostProcessError(
            f"process {_place.rank} of {_place.size} has lost another one of its run ({why}): the "
            "last checkpoint is intact, and the same command continues from it."
        ) from error
