"""What benchmarks share: the machine they ran on, and tables of runs."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from mimex.nn.parallel import use_workers


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


def table_of_runs(
    about: str, title: str, results: Path, runs: str, row: Callable[[Path], dict[str, str]]
) -> None:
    """The command of a benchmark that makes a line of a table of each run folder.

    Args:
        about: Its docstring: a line, a blank one, the command, a blank one, and what is measured.
        title: Of the file.
        results: The file that `--write` writes.
        runs: What folders it takes.
        row: A run's cells by column.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help=runs)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    use_workers(1)
    rows = [row(run) for run in args.runs]
    lines = [f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|"]
    lines += [f"| {' | '.join(cells.values())} |" for cells in rows]
    text = "\n".join(lines)
    print(text)
    if args.write:
        told = " ".join(" ".join(about.splitlines()[4:]).split())
        results.write_text(f"# {title}\n\n{told}\n\n{text}\n\n{describe()}\n")
