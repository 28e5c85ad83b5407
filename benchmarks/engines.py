"""MuJoCo and MuJoCo Warp side by side: do they agree, do the experts solve the tasks on both?

    python -m benchmarks.engines --write

Both engines start from the same state and get the same actions for 50 steps, then Warp takes over
MuJoCo's state for the next 50, four times: an expert's way from the start to success, and blind
motion (actions held for 25 steps) that bumps into things. Episodes are not ended. An environment
agrees if every number of a window of 50 steps stays within the tolerance; contacts are chaotic, so
that a difference in the last digit of float32 can decide which way a box falls.
"Per CPU-second" divides by the processor time of the whole process.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import warp
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from benchmarks.machine import describe
from mimex.envs.arrays import to_numpy
from mimex.envs.experts.play import expert_for, run
from mimex.envs.manipulation import VectorManipulation
from mimex.envs.settings import TASKS

RESULTS = Path(__file__).parent / "results" / "engines.md"
STEPS, WINDOWS, HOLD = 50, 4, 25
TOLERANCE = {
    "positions (m, rad)": 1e-3,
    "velocities (m/s, rad/s)": 2e-2,
    "arm's contact force (N)": 1.0,
    "dense reward": 1e-2,
}

Actions = Callable[[VectorManipulation, int], NDArray[Any]]


def expert(task: str, env: VectorManipulation) -> Actions:
    acting = expert_for(task)(env)
    return lambda env, _: acting.act(env)


def blind(task: str, env: VectorManipulation) -> Actions:
    rounds = WINDOWS * STEPS // HOLD
    held = np.random.default_rng(0).uniform(-0.5, 0.5, (rounds, *env.targets.shape))
    return lambda _, step: held[step // HOLD]


def differences(task: str, play: Callable[[str, Any], Actions], num_envs: int) -> NDArray[Any]:
    """Return how far the engines are apart, (windows, steps, kinds of numbers, N)."""
    common = {"reward": "dense", "autoreset_mode": AutoresetMode.DISABLED}
    ours = VectorManipulation(task, num_envs, **common)
    theirs = VectorManipulation(task, num_envs, engine="warp", **common)
    ours.reset(seed=0)
    theirs.reset(seed=0)
    actions, apart = play(task, ours), []
    for step in range(WINDOWS * STEPS):
        if step % STEPS == 0:
            theirs.set_state(ours.get_state())
        action = actions(ours, step)
        rewards = [env.step(action)[1] for env in (ours, theirs)]
        numbers = [
            (env.engine.qpos, env.engine.qvel, env.engine.arm_force()[:, None], reward[:, None])
            for env, reward in zip((ours, theirs), rewards, strict=True)
        ]
        apart.append([np.abs(a - to_numpy(b)).max(axis=1) for a, b in zip(*numbers, strict=True)])
    return np.array(apart).reshape(WINDOWS, STEPS, len(TOLERANCE), num_envs)


def parity(task: str, play: Callable[[str, Any], Actions], num_envs: int) -> str:
    apart = differences(task, play, num_envs).max(axis=1)  # (windows, kinds, N)
    cells = [f"{np.median(kind):.0e} / {kind.max():.0e}" for kind in apart.swapaxes(0, 1)]
    within = apart <= np.array(list(TOLERANCE.values()))[:, None]
    agreeing = within.all(axis=1)
    return " | ".join([task, play.__name__, *cells, f"{agreeing.sum()} of {agreeing.size}"])


def speed(task: str, engine: str, num_envs: int) -> str:
    env = VectorManipulation(task, num_envs, engine=engine, threads=1)
    env.reset(seed=0)
    actions = np.random.default_rng(0).normal(size=(STEPS, *env.targets.shape))
    wall, cpu = time.perf_counter(), time.process_time()
    for action in actions:
        env.step(action)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    done = STEPS * num_envs
    return f"{done / wall:,.0f} | {done / cpu:,.0f}"


def table(title: list[str], rows: list[str]) -> list[str]:
    return [f"| {' | '.join(title)} |", "|" + "---|" * len(title), *(f"| {r} |" for r in rows), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--envs", type=int, default=32, help="environments of the comparison")
    parser.add_argument("--episodes", type=int, default=32, help="of each expert")
    parser.add_argument("--speed-envs", type=int, default=256, help="environments of the speeds")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()

    def said(row: str) -> str:
        print(f"| {row} |", flush=True)
        return row

    agree = [
        said(parity(task, play, options.envs)) for task in options.tasks for play in (expert, blind)
    ]
    seeds = range(options.episodes)
    solved = [
        said(
            f"{task} | {run(task, seeds).sum()} of {options.episodes} "
            f"| {run(task, seeds, engine='warp').sum()} of {options.episodes}"
        )
        for task in options.tasks
    ]
    fast = [
        said(" | ".join([task, *(speed(task, e, options.speed_envs) for e in ("cpu", "warp"))]))
        for task in options.tasks
    ]
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    tolerance = "; ".join(f"{name}: {value:g}" for name, value in TOLERANCE.items())
    report = [
        "# Two engines",
        "",
        f"Made by `{' '.join(['python -m benchmarks.engines', *arguments, '--write'])}` on "
        f"{describe()}, MuJoCo {mujoco.__version__}, MuJoCo Warp {mujoco_warp.__version__}, Warp "
        f"{warp.__version__} on its device {warp.get_device().name or 'cpu'!r}.",
        "",
        *(line.strip() for line in (__doc__ or "").splitlines()[4:]),
        "",
        f"Largest differences within 50 steps, of the median environment / of all. Tolerance: "
        f"{tolerance}.",
        "",
        *table(["task", "actions", *TOLERANCE, "agree"], agree),
        "Experts, episodes solved of seeds 0 and up:",
        "",
        *table(["task", "MuJoCo", "MuJoCo Warp"], solved),
        f"Speed of {options.speed_envs} environments on one thread, as information only: Warp's "
        "device for CPUs is there for tests, and what else ran on the machine is in steps/s.",
        "",
        *table(
            [
                "task",
                *("MuJoCo: steps/s", "per CPU-second"),
                *("Warp on the CPU: steps/s", "per CPU-second"),
            ],
            fast,
        ),
    ]
    if options.write:
        RESULTS.write_text("\n".join(report).rstrip() + "\n")
        print(f"wrote {RESULTS}")


if __name__ == "__main__":
    main()
