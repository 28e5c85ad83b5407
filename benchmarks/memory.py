"""Whether a long run needs more and more memory.

    python -m benchmarks.memory --steps 3000000 --write

Trains small networks, with evaluations, checkpoints, maps and every other part of a run, in this
process, and looks at it all the while from a thread: resident memory, the heap that the allocator
of C has got from the system, what of it is handed out, and Python's objects. A leak grows with the
steps to the end. Resident memory grows also while pages of a heap that stays as large as it is are
touched for the first time: by simulations that meet more contacts than ever before (each has its
memory from the start; ``--run simulation`` is these alone), and in the 64 MB more than needed that
``mimex.nn.parallel.keep_memory`` keeps. That comes to an end.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import gymnasium
import numpy as np

from benchmarks.drill_kills import SMALL
from benchmarks.machine import describe
from mimex.cli import main as run_mimex

RESULTS = Path(__file__).parent / "results" / "memory.md"

RUNS = {
    "PPO": (
        *("FrankaReach", "--reward", "dense", "--bonus", "mimex", "--envs", "512", *SMALL),
        *("--loop.rollout-steps", "32", "--loop.bonus-minibatch", "16384", "--ppo.epochs", "1"),
        *("--ppo.minibatches", "2", "--ppo.hidden", "32", "--threads", "1"),
        *("--eval.episodes", "8", "--eval.every", "100000", "--track.checkpoint-every", "50000"),
    ),
    "DrQ-v2": (
        *("dmc/cartpole_swingup", "--observation", "state", "--bonus", "mimex", *SMALL),
        *("--suite.action-repeat", "8", "--drqv2.batch", "16", "--drqv2.hidden", "16"),
        *("--drqv2.trunk", "8", "--drqv2.seed-steps", "64", "--drqv2.random-steps", "64"),
        *("--replay.capacity", "2000", "--eval.episodes", "1", "--eval.every", "20000"),
        *("--track.checkpoint-every", "10000", "--off-policy.report-every", "2000"),
        *("--threads", "1"),
    ),
}


SIMULATION = "simulation"


class Look(NamedTuple):
    """What a process needs at one moment."""

    step: float
    resident: float  # MB
    heap: float  # MB that C has got from the system
    used: float  # MB of it that are handed out
    objects: int  # that Python's collector knows
    blocks: int  # of Python's own allocator


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


_LIBC = ctypes.CDLL(None)
_LIBC.mallinfo2.restype = _Mallinfo2


def look(step: float) -> Look:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    info = _LIBC.mallinfo2()
    gc.collect()  # or what it has not yet got to would be counted
    objects = len(gc.get_objects())
    megabytes = os.sysconf("SC_PAGE_SIZE") / 1e6
    heap, used = (info.arena + info.hblkhd) / 1e6, (info.uordblks + info.hblkhd) / 1e6
    return Look(step, pages * megabytes, heap, used, objects, sys.getallocatedblocks())


def last_step(metrics: Path) -> float:
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - 16_384))
        whole = file.read().rpartition(b"\n")[0]
    return float(json.loads(whole.rpartition(b"\n")[2])["step"])


def watched(arguments: list[str], out: Path, every: float) -> list[Look]:
    """Trains; looks every so many seconds."""
    looks: list[Look] = []
    ended = threading.Event()

    def watch() -> None:
        metrics = out / "metrics.jsonl"
        while not ended.wait(every):
            if metrics.exists() and metrics.stat().st_size:
                looks.append(look(last_step(metrics)))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    code = run_mimex(["train", *arguments, "--out", str(out)])
    ended.set()
    watcher.join()
    assert code == 0
    return looks


def simulated(steps: int, envs: int = 512) -> list[Look]:
    """The simulations of the PPO run alone, with random actions; looks a hundred times."""
    env = gymnasium.make_vec("mimex/FrankaReach-v0", num_envs=envs, reward="dense", threads=1)
    env.reset(seed=0)
    generator = np.random.default_rng(0)
    rounds = steps // envs
    looks = []
    for made in range(rounds):
        shape = (envs, *env.single_action_space.shape)  # type: ignore[misc]
        env.step(generator.uniform(-1.0, 1.0, shape).astype(np.float32))
        if made % max(1, rounds // 100) == 0:
            looks.append(look(made * envs))
    env.close()
    return looks


def table(looks: list[Look], steps: int, parts: int = 10) -> list[str]:
    """The median of each tenth of the run."""
    lines = [
        "| steps, from | resident, MB | C's heap, MB | in use, MB | Python objects | blocks |",
        "|---|---|---|---|---|---|",
    ]
    for part in range(parts):
        first, end = steps * part / parts, steps * (part + 1) / parts
        some = [one for one in looks if first <= one.step < end]
        if some:
            middle = np.median(np.array(some), axis=0)
            sizes = " | ".join(f"{size:.1f}" for size in middle[1:4])
            lines.append(f"| {first:,.0f} | {sizes} | {middle[4]:,.0f} | {middle[5]:,.0f} |")
    return lines


def slope(looks: list[Look], column: int, steps: int) -> float:
    """By how much a column grows in a million steps, by a line through the second half."""
    half = np.array([one for one in looks if one.step >= steps / 2])
    return float(np.polyfit(half[:, 0], half[:, column], 1)[0] * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", choices=[*RUNS, SIMULATION], default="PPO")
    parser.add_argument("--steps", type=int, default=3_000_000)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two looks")
    parser.add_argument("--write", action="store_true", help=f"add to {RESULTS.name}")
    args = parser.parse_args()
    if args.run == SIMULATION:
        looks = simulated(args.steps)
    else:
        with tempfile.TemporaryDirectory() as folder:
            arguments = [*RUNS[args.run], "--steps", str(args.steps)]
            looks = watched(arguments, Path(folder) / "run", args.every)
    resident, heap, used, objects, blocks = (slope(looks, i, args.steps) for i in range(1, 6))
    growth = (
        f"In the second half, by lines through {len(looks)} looks in all, a million steps add "
        f"{resident:+.2f} MB resident, {heap:+.2f} MB of heap, {used:+.2f} MB in use, "
        f"{objects:+,.0f} objects and {blocks:+,.0f} blocks."
    )
    command = f"python -m benchmarks.memory --run {args.run} --steps {args.steps} --write"
    lines = [f"## {args.run}", "", f"`{command}` on {describe()}", ""]
    text = "\n".join([*lines, *table(looks, args.steps), "", growth]) + "\n"
    print(text)
    if args.write:
        before = RESULTS.read_text() if RESULTS.exists() else "# Memory of long runs\n"
        RESULTS.write_text(f"{before}\n{text}")


if __name__ == "__main__":
    main()
