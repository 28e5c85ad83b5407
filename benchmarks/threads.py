"""Why two threads are not twice as fast as one: how a step of the environments divides.

    python -m benchmarks.threads --write     writes benchmarks/results/threads.md

Per control step of all environments: milliseconds in what is spread over the threads, and in all
the rest. From state the simulator is spread and the rest is NumPy on one thread (rewards,
observations, resets); from 84 px the drawing is looked at, and the rest includes the simulator.
"Busy" is how many cores work while it runs.
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
WARM_UP, STEPS, REPEATS = 10, 50, 3
STATE_ENVS, PIXEL_ENVS = 256, 32


def split(task: str, num_envs: int, threads: int, pixels: bool) -> tuple[float, float, float]:
    """Milliseconds a control step in the part that is looked at, and in the rest; cores busy."""
    view = {"observation": "pixels", "image_size": 84} if pixels else {}
    env: Any = gymnasium.make_vec(f"mimex/{task}-v0", num_envs=num_envs, threads=threads, **view)
    env.reset(seed=0)
    world = env.unwrapped.world
    part, name = (world._wrist, "render") if pixels else (world.engine, "step")
    work, inside, busy = getattr(part, name), 0.0, 0.0

    def timed(*arguments: Any) -> Any:
        nonlocal inside, busy
        start, cpu = time.perf_counter(), time.process_time()
        result = work(*arguments)
        inside += time.perf_counter() - start
        busy += time.process_time() - cpu
        return result

    setattr(part, name, timed)
    actions = np.random.default_rng(0).normal(size=(WARM_UP + STEPS, *env.action_space.shape))
    for action in actions[:WARM_UP]:
        env.step(action)
    inside = busy = 0.0
    start = time.perf_counter()
    for action in actions[WARM_UP:]:
        env.step(action)
    total = time.perf_counter() - start
    env.close()
    return 1e3 * inside / STEPS, 1e3 * (total - inside) / STEPS, busy / inside


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    lines = [
        f"`python -m benchmarks.threads --write` on {describe()}",
        "",
        f"{STATE_ENVS} environments from state, {PIXEL_ENVS} from pixels.",
        "",
        "| task | part | 1 thread: part, rest (ms) | 2 threads | busy | part gains | all gains |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, pixels in ((task, pixels) for pixels in (False, True) for task in TASKS):
        envs = PIXEL_ENVS if pixels else STATE_ENVS
        # One and two threads take turns, so that a slow moment hits both.
        rounds = [
            [split(task, envs, threads, pixels) for threads in (1, 2)] for _ in range(REPEATS)
        ]
        (a, b, _), (c, d, busy) = (
            [statistics.median(round_[t][part] for round_ in rounds) for part in range(3)]
            for t in (0, 1)
        )
        lines.append(
            f"| {task} | {'drawing 84 px' if pixels else 'simulator'} | {a:.2f}, {b:.2f} "
            f"| {c:.2f}, {d:.2f} | {busy:.2f} | {a / c:.2f}x | {(a + b) / (c + d):.2f}x |"
        )
        print(lines[-1], flush=True)
    if args.write:
        RESULTS.write_text("# How a step divides\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
