"""Updates a second of DrQ-v2 from pixels: without a bonus, with each, and written the plain way.

    python -m benchmarks.drqv2            prints the tables
    python -m benchmarks.drqv2 --write    also writes benchmarks/results/drqv2.md

All methods have the published networks, batch and pictures (random ones: their content does not
change the time). Bonuses on windows draw transitions in runs of four neighbours (--replay.run 4);
"drawn one by one", which is the default of all methods, is without. Methods take turns within each
round, so that a slow moment of the machine hits all of them; the table has medians. Memory is
measured in a process of its own for each buffer.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces
from rich.progress import track

from benchmarks.bonus import high_water
from benchmarks.machine import describe
from benchmarks.plain_drqv2 import PlainDrQv2, PlainReplay
from mimex import ICM, RND, MIMEx, Window, use_workers
from mimex.agents.actions import ActionWriter
from mimex.agents.drqv2 import DrQv2
from mimex.agents.drqv2_settings import DrQv2Settings
from mimex.agents.encoders import ObservationReader
from mimex.bonus.base import IntrinsicReward
from mimex.config.presets import PUBLISHED_BONUSES
from mimex.data.replay import ReplayBuffer
from mimex.nn.parallel import available_cores, keep_memory

FRAME, STACK, ACTIONS = (3, 84, 84), 3, 1
STACKED = (STACK * FRAME[0], *FRAME[1:])
OBSERVATIONS = ObservationReader(spaces.Box(0, 255, STACKED, np.uint8))
ACTION = ActionWriter(spaces.Box(-1, 1, (ACTIONS,), np.float32))
EPISODE = 501  # observations of an episode of the suite at two frames a step
FRAMES = 4000  # in the buffers that are timed
RUN = 4  # transitions in a row, where windows overlap
RESULTS = Path(__file__).parent / "results" / "drqv2.md"
Step = Callable[[], object]


def filled(frames: int, window: int = 0, run: int = 1) -> ReplayBuffer:
    """A buffer full of noise in episodes of the usual length."""
    replay = ReplayBuffer(
        frames, FRAME, ACTIONS, pixels=True, stack=STACK, n_step=3, window=window, run=run
    )
    for frame in replay.observations:
        frame.random_(256)
    replay.actions.uniform_(-1, 1)
    replay.ages.copy_(torch.arange(frames) % EPISODE)
    replay.added = [frames]
    return replay


def ours(bonus: IntrinsicReward | None, features: str, run: int = 1) -> Step:
    """One update with relabelled rewards."""
    replay = filled(FRAMES, 0 if bonus is None else bonus.length, run)
    agent = DrQv2(OBSERVATIONS, ACTION, DrQv2Settings(features=features))
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        batch = replay.sample(agent.settings.batch, generator)
        encoded = agent.encode(batch)
        rewards = batch.rewards
        if bonus is not None and batch.windows is not None:
            window = Window(encoded.windows, batch.windows.valid, batch.windows.actions)
            rewards = rewards + 0.05 * bonus.learn(window)[0]
        agent.update(batch, 0, rewards, encoded)

    return step


def plain() -> Step:
    agent = PlainDrQv2(DrQv2(OBSERVATIONS, ACTION, DrQv2Settings()))
    replay = PlainReplay(FRAMES, STACKED, ACTIONS, n_step=3)
    replay.observations.random_(256)
    return on_torch_threads(lambda: agent.update(replay.sample(agent.settings.batch), 0))


def on_torch_threads(step: Step) -> Step:
    """The step with PyTorch's own threads, on which the plain way depends."""

    def run() -> None:
        torch.set_num_threads(available_cores())
        step()
        torch.set_num_threads(1)

    return run


def methods() -> dict[str, Step]:
    trunk = DrQv2Settings().trunk
    wide = 39_200

    def mimex(features: int) -> MIMEx:
        return MIMEx(features, **PUBLISHED_BONUSES["mimex"])

    return {
        "plain, none (stored stacks)": plain(),
        "none": ours(None, "trunk"),
        "rnd, 50 features": ours(RND(trunk, 1), "trunk"),
        "icm, 50 features": ours(ICM(trunk, ACTIONS, 2), "trunk", RUN),
        "mimex, 50 features": ours(mimex(trunk), "trunk", RUN),
        "mimex, 50 features, drawn one by one": ours(mimex(trunk), "trunk"),
        "mimex, 50 features, runs of 2": ours(mimex(trunk), "trunk", run=2),
        "mimex, 39,200 features": ours(mimex(wide), "encoder", RUN),
        "mimex, 39,200 features, drawn one by one": ours(mimex(wide), "encoder"),
    }


def time_all(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in track(range(rounds + 2), "updates", disable=not sys.stderr.isatty()):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if number > 1:  # the first rounds warm up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def sampling_seconds(repeats: int = 30) -> float:
    """Median time to draw a batch with windows of 5 and to gather all of its pictures."""
    replay, generator = filled(FRAMES, 5), torch.Generator().manual_seed(0)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        batch = replay.sample(256, generator)
        for part in (batch.observations, batch.next_observations, batch.windows.others):
            for first in range(0, len(part), 16):
                part[first : first + 16]
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def memory_of(kind: str, frames: int) -> None:
    before = high_water()
    if kind == "single frames":
        filled(frames)
    else:
        for stack in PlainReplay(frames, STACKED, ACTIONS, n_step=3).observations:
            stack.random_(256)
    print(high_water() - before)


def measured_megabytes(kind: str, frames: int) -> float:
    call = [sys.executable, "-m", "benchmarks.drqv2", "--memory", kind, str(frames)]
    return float(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def computed_gigabytes(kind: str, frames: int) -> float:
    pictures = math.prod(FRAME if kind == "single frames" else STACKED)
    beside = 4 * ACTIONS + 4 + (1 + 8 if kind == "single frames" else 4)  # action, reward, end
    return frames * (pictures + beside) / 1e9


def speed_table(rounds: int) -> list[str]:
    medians = time_all(methods(), rounds)
    lines = ["| update | seconds | updates/s | of none |", "|---|---|---|---|"]
    for name, seconds in medians.items():
        share = medians["none"] / seconds
        lines.append(f"| {name} | {seconds:.3f} | {1 / seconds:.2f} | {share:.0%} |")
    sampling = sampling_seconds()
    lines += [
        "",
        f"Drawing a batch of 256 with windows of 5 and gathering all its pictures takes "
        f"{1e3 * sampling:.0f} ms on one thread, {sampling / medians['mimex, 50 features']:.0%} "
        "of that update.",
    ]
    return lines


def memory_table(frames: int) -> list[str]:
    lines = [
        f"| buffer | {frames:,} frames, measured (GB) | the same, computed | 1M frames, computed |",
        "|---|---|---|---|",
    ]
    return lines + [
        f"| {kind} | {measured_megabytes(kind, frames) * 1024**2 / 1e9:.2f} "
        f"| {computed_gigabytes(kind, frames):.2f} | {computed_gigabytes(kind, 1_000_000):.1f} |"
        for kind in ("single frames", "stacks")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds, medians are shown")
    parser.add_argument("--frames", type=int, default=100_000, help="of the buffer measured")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--memory", nargs=2, metavar="X", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory:
        memory_of(args.memory[0], int(args.memory[1]))
        return
    keep_memory()
    machine = describe()
    use_workers(available_cores())
    text = "\n".join(
        [
            f"`python -m benchmarks.drqv2 --write --rounds {args.rounds}` on {machine}; ours on "
            f"{available_cores()} worker threads.",
            "",
            *speed_table(args.rounds),
            "",
            *memory_table(args.frames),
        ]
    )
    print(text)
    if args.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("# Updates of DrQ-v2 from pixels\n\n" + text + "\n")


if __name__ == "__main__":
    main()
