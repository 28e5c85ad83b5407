"""Why two threads are not twice as fast as one: how a step of the environments divides.

    python -m benchmarks.threads --write     writes benchmarks/results/threads.md

Per control step of all environments: milliseconds in the simulator, which is spread over the
threads, and in all the rest (rewards, observations, resets), which is NumPy on one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import mimex.envs  # noqa: F401 (registers the tasks)
from benchmarks.machine import describe
from mimex.envs.settings import TASKS

RESULTS = Path(__file__).parent / "results" / "threads.md"
WARM_UP, STEPS, REPEATS = 20, 100, 3


def split(task: str, num_envs: int, threads: int) -> tuple[float, float]:
    """Milliseconds a control step: in the simulator, and in the rest."""
    env: Any = gymnasium.make_vec(f"mimex/{task}-v0", num_envs=num_envs, threads=threads)
    env.reset(seed=0)
    engine = env.unwrapped.engine
    simulate, inside = engine.step, 0.0

    def timed(targets: Any) -> Any:
        nonlocal inside
        start = time.perf_counter()
        failed = simulate(targets)
        inside += time.perf_counter() - start
        return failed

    engine.step = timed
    actions = np.random.default_rng(0).normal(size=(WARM_UP + STEPS, *env.action_space.shape))
    for action in actions[:WARM_UP]:
        env.step(action)
    inside, start = 0.0, time.perf_counter()
    for action in actions[WARM_UP:]:
        env.step(action)
    total = time.perf_counter() - start
    env.close()
    return 1e3 * inside / STEPS, 1e3 * (total - inside) / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--envs", type=int, default=256)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    lines = [
        f"`python -m benchmarks.threads --envs {args.envs} --write` on {describe()}",
        "",
        "| task | 1 thread: simulator, rest (ms) | 2 threads | simulator gains | all gains |",
        "|---|---|---|---|---|",
    ]
    for task in TASKS:
        # One and two threads take turns, so that a slow moment hits both.
        rounds = [[split(task, args.envs, threads) for threads in (1, 2)] for _ in range(REPEATS)]
        (a, b), (c, d) = (
            [statistics.median(round_[t][part] for round_ in rounds) for part in (0, 1)]
            for t in (0, 1)
        )
        lines.append(
            f"| {task} | {a:.2f}, {b:.2f} | {c:.2f}, {d:.2f} | {a / c:.2f}x "
            f"| {(a + b) / (c + d):.2f}x |"
        )
        print(lines[-1], flush=True)
    if args.write:
        RESULTS.write_text("# How a step divides\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
