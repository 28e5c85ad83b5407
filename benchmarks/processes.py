"""Two processes against two threads: whole updates on the same work.

    python -m benchmarks.processes --write

One process on one thread, one on two threads, and two processes on one thread each train on the
same task with as many environments, steps and minibatches in all. They take turns, update by
update, so that all meet the same machine; the others wait meanwhile. Speeds are medians over the
turns, and ratios medians of the ratios within a turn. The first update of each, and its warm-up,
are not counted; nor are evaluations and checkpoints, which one process makes while the other waits.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from torch.distributed import TCPStore

from benchmarks.machine import describe
from mimex.bonus import BONUSES
from mimex.commands.build import make_training
from mimex.config import TrainConfig, preset
from mimex.nn import processes
from mimex.nn.parallel import keep_memory, use_workers
from mimex.nn.processes import Place

RESULTS = Path(__file__).parent / "results" / "processes.md"
PARTS = ("simulation", "acting", "windows", "bonus", "learning", "observing")


class Arrangement(NamedTuple):
    """How many processes work, and on how many threads each."""

    processes: int
    threads: int

    def __str__(self) -> str:
        return f"{self.processes} x {self.threads}"


ARRANGEMENTS = (Arrangement(1, 1), Arrangement(1, 2), Arrangement(2, 1))


def work(settings: dict[str, Any], place: Place, port: int, pipe: Connection) -> None:
    """In a process of its own: makes an update whenever it is told to."""
    config = TrainConfig.from_dict(settings)
    keep_memory()
    use_workers(config.threads)
    with processes.at(place):
        if place.size > 1:
            processes.meet(TCPStore("127.0.0.1", port, place.size, is_master=False))
        training = make_training(config)
        rows = training.rows(sys.maxsize)
        pipe.send(next(rows))
        while pipe.recv():
            pipe.send(next(rows))


class Workers:
    """The processes of one arrangement, all of which wait until they are told to go on."""

    def __init__(self, config: TrainConfig, arrangement: Arrangement) -> None:
        context = multiprocessing.get_context("spawn")
        size = arrangement.processes
        config = replace(config, threads=arrangement.threads, processes=size)
        self._store = TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            arguments = (config.to_dict(), Place(rank, size, rank, size), self._store.port, theirs)
            self._processes.append(context.Process(target=work, args=arguments, daemon=True))
            self._processes[-1].start()
            self._pipes.append(ours)
        for pipe in self._pipes:
            pipe.recv()
        self.seconds: list[float] = []
        self.rows: list[dict[str, float]] = []  # of the first process

    def update(self) -> None:
        start = time.perf_counter()
        for pipe in self._pipes:
            pipe.send(True)
        told: list[Any] = [pipe.recv() for pipe in self._pipes]
        self.seconds.append(time.perf_counter() - start)
        self.rows.append(told[0])

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(False)
        for process in self._processes:
            process.join()


def measured(config: TrainConfig, updates: int) -> list[str]:
    """Rows of the table for one bonus."""
    all_workers = {arrangement: Workers(config, arrangement) for arrangement in ARRANGEMENTS}
    for _ in range(updates):
        for workers in all_workers.values():
            workers.update()
    lines, steps = [], config.envs * config.loop.rollout_steps
    alone = all_workers[ARRANGEMENTS[0]].seconds
    for arrangement, workers in all_workers.items():
        workers.close()
        ratio = statistics.median(a / b for a, b in zip(alone, workers.seconds, strict=True))
        parts = [
            f"{1e3 * statistics.median(row.get(f'time/{part}', 0.0) for row in workers.rows):.0f}"
            for part in PARTS
        ]
        speed = steps / statistics.median(workers.seconds)
        lines.append(
            f"| {config.bonus} | {arrangement} | {speed:,.0f} | {ratio:.2f} | {' | '.join(parts)} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="FrankaReach")
    parser.add_argument("--envs", type=int, default=512)
    parser.add_argument("--updates", type=int, default=15)
    parser.add_argument("--bonuses", nargs="*", default=["none", "mimex"], choices=BONUSES)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    base = replace(preset("cpu", task=args.task), task=args.task, envs=args.envs, reward="sparse")
    lines = [
        f"`python -m benchmarks.processes --task {args.task} --envs {args.envs} --updates "
        f"{args.updates} --write` on {describe()}",
        "",
        f"{args.envs} environments in all, rollouts of {base.loop.rollout_steps} steps. Parts are "
        "milliseconds of the first process, waiting for the other included.",
        "",
        "| bonus | processes x threads | steps/s | against 1 x 1 | " + " | ".join(PARTS) + " |",
        "|---" * (4 + len(PARTS)) + "|",
    ]
    for bonus in args.bonuses:
        lines += measured(replace(base, bonus=bonus).checked(), args.updates)
    if args.write:
        RESULTS.write_text("# Processes and threads\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
