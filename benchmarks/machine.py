"""The machine that a benchmark ran on."""

from __future__ import annotations

import os
import platform
import statistics
import time

import torch


def describe() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{cores} cores ({platform.machine()}), {torch.get_num_threads()} PyTorch threads, "
        f"PyTorch {torch.__version__}, Python {platform.python_version()}"
    )


def matmul_peak(size: int = 1024, repeats: int = 30) -> float:
    """The best matrix-product rate of this machine in single precision (FLOP/s)."""
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        rates.append(2 * size**3 / (time.perf_counter() - start))
    return statistics.median(sorted(rates)[-repeats // 3 :])
