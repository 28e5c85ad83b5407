"""How fast the eight tasks are.

    python -m benchmarks.envs --write

Every number is a median over repeats. "Per CPU-second" divides by the processor time of the whole
process, so that it does not depend on what else runs on the machine; "steps/s" does.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import mujoco
import numpy as np

import mimex.envs  # noqa: F401 (registers the tasks)
from benchmarks.machine import describe
from mimex.envs.settings import TASKS

RESULTS = Path(__file__).parent / "results" / "envs.md"
VIEWS: dict[str, dict[str, Any]] = {
    "oracle": {"observation": "oracle"},
    "84 px": {"observation": "pixels", "image_size": 84},
    "224 px": {"observation": "pixels", "image_size": 224},
}
ACTION_STD = 1.0  # an untrained policy's

# Environments to compare with: package, module that registers them, id, options of the image size.
OTHERS = (
    ("gymnasium-robotics", "gymnasium_robotics", "FetchPickAndPlace-v4", ("width", "height")),
    ("panda-gym", "panda_gym", "PandaPickAndPlace-v3", ("render_width", "render_height")),
)


@dataclass(frozen=True)
class Speed:
    """Environment steps per second of wall-clock time and of processor time."""

    wall: float
    cpu: float


def measure(step: Callable[[], int], seconds: float, repeats: int) -> Speed:
    """Return medians over repeats; `step` returns how many environment steps it made."""
    step()
    speeds = []
    for _ in range(repeats):
        wall, cpu, steps = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - wall < seconds:
            steps += step()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        speeds.append((steps / wall, steps / cpu))
    return Speed(*(statistics.median(column) for column in zip(*speeds, strict=True)))


def ours(task: str, view: str, threads: int, options: argparse.Namespace) -> Speed:
    """Measure one of the eight tasks, vectorized."""
    num_envs = options.envs if view == "oracle" else options.pixel_envs
    env = gymnasium.make_vec(f"mimex/{task}-v0", num_envs=num_envs, threads=threads, **VIEWS[view])
    env.reset(seed=0)
    actions = np.random.default_rng(0).normal(size=(64, *env.action_space.shape)) * ACTION_STD
    count = 0

    def step() -> int:
        nonlocal count
        env.step(actions[count % len(actions)])
        count += 1
        return num_envs

    speed = measure(step, options.seconds, options.repeats)
    env.close()
    return speed


def other(env_id: str, size_options: tuple[str, str], view: str, options: Any) -> Speed:
    """Measure an environment of another package: one instance in this process."""
    chosen: dict[str, Any] = {}
    if view != "oracle":
        pixels = VIEWS[view]["image_size"]
        os.environ["MUJOCO_GL"] = os.environ.get("MUJOCO_GL") or "egl"
        chosen = {"render_mode": "rgb_array"} | dict.fromkeys(size_options, pixels)
    env = gymnasium.make(env_id, disable_env_checker=True, **chosen)
    env.reset(seed=0)
    env.action_space.seed(0)

    def step() -> int:
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if view != "oracle":
            env.render()
        if terminated or truncated:
            env.reset()
        return 1

    speed = measure(step, options.seconds, options.repeats)
    env.close()
    return speed


def fix_enumerations() -> None:
    """Let gymnasium-robotics run: in MuJoCo 3.17 an enumeration no longer equals a NumPy number."""
    utils = importlib.import_module("gymnasium_robotics.utils.mujoco_utils")
    members = dict(vars(mujoco))
    for enumeration in ("mjtJoint", "mjtEq"):
        values = getattr(mujoco, enumeration).__members__.items()
        members[enumeration] = SimpleNamespace(**{name: int(value) for name, value in values})
    utils.mujoco = SimpleNamespace(**members)  # type: ignore[attr-defined]


def speed_table(options: argparse.Namespace) -> list[str]:
    """Return the table of speeds, printing rows as they come."""
    lines = [
        "| task | observation | envs | 1 thread: steps/s | per CPU-second | 2 threads: steps/s "
        "| per CPU-second | 2 threads / 1 |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def add(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    for task in options.tasks:
        for view in options.views:
            one, two = (ours(task, view, threads, options) for threads in (1, 2))
            num_envs = options.envs if view == "oracle" else options.pixel_envs
            add(
                f"| {task} | {view} | {num_envs} | {one.wall:,.0f} | {one.cpu:,.0f} "
                f"| {two.wall:,.0f} | {two.cpu:,.0f} | {two.wall / one.wall:.2f} |"
            )
    for package, module, env_id, size_options in OTHERS:
        try:
            importlib.import_module(module)
        except ImportError as error:
            add(f"| {env_id} | skipped: {package} is not installed ({error}) | | | | | | |")
            continue
        if module == "gymnasium_robotics":
            fix_enumerations()
        for view in options.views:
            try:
                one = other(env_id, size_options, view, options)
            except Exception as error:  # whatever ails another package must not end this run
                add(f"| {env_id} ({package}) | {view}: fails here ({error}) | | | | | | |")
                continue
            add(f"| {env_id} ({package}) | {view} | 1 | {one.wall:,.0f} | {one.cpu:,.0f} | | | |")
    return lines


def main() -> None:
    """Measure, print, and with --write keep the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--views", nargs="+", default=list(VIEWS), choices=list(VIEWS))
    parser.add_argument("--envs", type=int, default=256, help="environments for oracle")
    parser.add_argument("--pixel-envs", type=int, default=32, help="environments for pixels")
    parser.add_argument("--seconds", type=float, default=1.0, help="of one repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    command = " ".join(["python -m benchmarks.envs", *arguments, "--write"])
    report = [
        "# Speed of the environments",
        "",
        f"Made by `{command}` on {describe()}, MuJoCo {mujoco.__version__}.",
        "",
        *(line.strip() for line in (__doc__ or "").splitlines()[4:]),
        "Rewards, observations and automatic resets are included; actions are normal with standard "
        "deviation 1. Environments of other packages run one instance, as they have no vector form "
        "of their own, and for pixels render one image per step.",
        "",
        *speed_table(options),
    ]
    if options.write:
        RESULTS.write_text("\n".join(report) + "\n")
        print(f"wrote {RESULTS}")


if __name__ == "__main__":
    main()
