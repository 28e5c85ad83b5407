"""Time and memory of one train-and-score step: the published arithmetic, ours, RND and ICM.

    python -m benchmarks.bonus            prints the table
    python -m benchmarks.bonus --write    also writes benchmarks/results/bonus.md
    python -m benchmarks.bonus --profile  prints a profile of our step by operation

Methods take turns within each round, so that a slow moment of the machine hits all of them; the
table has medians. Peak memory is measured in a process of its own for each method.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

from benchmarks.machine import describe, matmul_peak
from benchmarks.plain import PlainMIMEx
from mimex import ICM, RND, MIMEx, Window
from mimex.bonus.size import PAPER, RELEASED
from mimex.config.presets import PUBLISHED_BONUSES

SHAPES = [(16384, 5, 27, 1), (16384, 5, 384, 1), (16384, 5, 384, 5), (512, 5, 39200, 1)]
ACTIONS = 9
PUBLISHED: dict[str, Any] = dict(PUBLISHED_BONUSES["mimex"])
RESULTS = Path(__file__).parent / "results" / "bonus.md"
Step = Callable[[], object]


def plain_in_minibatches(features: torch.Tensor, plain: PlainMIMEx) -> Step:
    """Return the plain step in minibatches of 512 windows, which shows what chunks alone save."""
    return lambda: [plain.learn(part) for part in features.split(512)]


def methods(windows: int, length: int, width: int, masks: int) -> dict[str, Step]:
    features = torch.randn(windows, length, width)
    window = Window(features, actions=torch.randn(windows, length, ACTIONS))
    plain = PlainMIMEx(width, length, masks)
    shorter = PlainMIMEx(width, length, masks, class_token=False)
    ours = MIMEx(width, length, masks=masks, **PUBLISHED)
    released = MIMEx(width, length, masks=masks, **PUBLISHED | {"size": RELEASED})
    rnd, icm = RND(width, length), ICM(width, ACTIONS, length)
    return {
        "plain": lambda: plain.learn(features),
        "plain, 512 at a time": plain_in_minibatches(features, plain),
        "plain, no class token": lambda: shorter.learn(features),
        "ours": lambda: ours.learn(window),
        "ours, train_fraction 0.25": lambda: ours.learn(window, train_fraction=0.25),
        "ours, class token as in plain": lambda: released.learn(window),
        "RND": lambda: rnd.learn(window),
        "ICM": lambda: icm.learn(window),
    }


def flops(windows: int, length: int, width: int, masks: int) -> float:
    """Return the floating-point operations of the matrix products in one of our steps."""
    size, bonus = PAPER, MIMEx(2, length, **PUBLISHED)
    hidden = round(bonus.effective_ratio * length)
    kept = length - hidden
    choices = length if kept == 1 else 10**9  # different masks there are
    rows = windows * choices * (1 - (1 - 1 / choices) ** masks) if masks > 1 else windows
    w, c, token = size.width, size.decoder_width, int(size.class_token)
    embed = min(rows * kept, windows * length) * width * w
    block = 12 if kept + token > 1 else 10  # a token alone needs neither query nor key
    encoder = rows * (kept + token) * size.depth * block * w * w
    seen = kept + token
    decoder = rows * (seen * w * c + (seen + hidden) * 2 * c * c + hidden * 10 * c * c)
    predict = rows * hidden * c * width
    # Forward, and backward twice that; the features need no gradient.
    return 2 * (2 * embed + 3 * (encoder + decoder + predict))


def time_all(steps: dict[str, Step], rounds: int, label: str) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in track(range(rounds + 1), label, disable=not sys.stderr.isatty()):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if number > 0:  # the first round warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_megabytes(shape: tuple[int, ...], name: str) -> float:
    """Return the peak memory that one step adds, measured in its own process."""
    call = [sys.executable, "-m", "benchmarks.bonus", "--memory", name, *map(str, shape)]
    return float(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def memory_of(name: str, shape: tuple[int, ...]) -> None:
    step = methods(*shape)[name]
    before = high_water()
    step()
    print(high_water() - before)


def high_water() -> float:
    """Return the peak memory of this process (MB; Linux).

    Not ru_maxrss, which a process inherits from the one that started it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def profile() -> None:
    step = methods(*SHAPES[1])["ours"]
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as run:
        step()
    print(run.key_averages().table(sort_by="self_cpu_time_total", row_limit=20))


def table(rounds: int) -> str:
    peak = matmul_peak()
    lines = [
        f"`python -m benchmarks.bonus --write --rounds {rounds}` on {describe()}",
        "",
        f"Matrix-product peak measured in the same run: {peak / 1e9:.0f} GFLOP/s.",
        "",
        "| (windows, T, D, K) | method | seconds | of plain | peak memory (MB) |",
        "|---|---|---|---|---|",
    ]
    shares = []
    for shape in SHAPES:
        medians = time_all(methods(*shape), rounds, str(shape))
        for name, seconds in medians.items():
            lines.append(
                f"| {shape} | {name} | {seconds:.3f} | {medians['plain'] / seconds:.2f}x "
                f"| {peak_megabytes(shape, name):.0f} |"
            )
        share = flops(*shape) / medians["ours"] / peak
        shares.append(f"{shape}: {share:.0%}")
    lines += ["", "Our matrix products against the peak: " + ", ".join(shares) + "."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds, medians are shown")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--profile", action="store_true", help="profile our step instead")
    parser.add_argument("--memory", nargs=5, metavar="X", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory:
        memory_of(args.memory[0], tuple(map(int, args.memory[1:])))
    elif args.profile:
        profile()
    else:
        text = table(args.rounds)
        print(text)
        if args.write:
            RESULTS.write_text("# Time of one train-and-score step\n\n" + text)


if __name__ == "__main__":
    main()
