"""MuJoCo and MuJoCo Warp side by side: do they agree, do the experts solve the tasks on both?

    python -m benchmarks.engines --write

Both engines start from the same state and get the same actions, until the episode ends: an
expert's, or blind ones (held for 25 steps), which bump into things. In one table Warp takes over
MuJoCo's state before every step, in the other every 50 steps; there are 200. An environment agrees
for 50 steps if every number stays within the tolerance and its episode ends in the same step.
Contacts are chaotic: over many steps float32's last digit decides which way a box falls.
"Per CPU-second" divides by the processor time of the whole process.
"""

from __future__ import annotations

import argparse
import sys
import time
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
from mimex.envs.manipulation import TOUCH_LIMIT, VectorManipulation
from mimex.envs.settings import TASKS

RESULTS = Path(__file__).parent / "results" / "engines.md"
WINDOW, WINDOWS, HOLD = 50, 4, 25  # steps, how many, steps
TOLERANCE = {
    "positions (m, rad)": 1e-3,
    "velocities (m/s, rad/s)": 2e-2,
    "arm's contact force (relative)": 0.1,
    "dense reward": 1e-2,
    "episode ends": 0.0,
}


class Expert:
    def __init__(self, task: str, env: VectorManipulation) -> None:
        self._expert = expert_for(task)(env)

    def act(self, env: VectorManipulation, step: int) -> NDArray[Any]:
        return self._expert.act(env)

    def reset(self, which: NDArray[np.bool_]) -> None:
        self._expert.reset(which)


class Blind:
    def __init__(self, task: str, env: VectorManipulation) -> None:
        shape = WINDOWS * WINDOW // HOLD, *env.targets.shape
        self._held = np.random.default_rng(0).uniform(-1.0, 1.0, shape)

    def act(self, env: VectorManipulation, step: int) -> NDArray[Any]:
        return self._held[step // HOLD]

    def reset(self, which: NDArray[np.bool_]) -> None:
        pass


def look(env: VectorManipulation, action: NDArray[Any]) -> list[NDArray[Any]]:
    """Step, and return what is compared, (N, numbers) each."""
    _, rewards, terminated, _, _ = env.step(action)
    engine = env.engine
    force = np.log(np.maximum(to_numpy(engine.arm_force()), TOUCH_LIMIT))  # difference: a ratio
    columns = (force, rewards, terminated.astype(float))
    return [to_numpy(engine.qpos), to_numpy(engine.qvel), *(column[:, None] for column in columns)]


def differences(task: str, kind: type[Any], num_envs: int, handover: int) -> NDArray[Any]:
    """Return how far the engines are apart, (windows, kinds of numbers, N): largest of 50 steps."""
    common: dict[str, Any] = {"reward": "dense", "autoreset_mode": AutoresetMode.DISABLED}
    ours = VectorManipulation(task, num_envs, **common)
    theirs = VectorManipulation(task, num_envs, engine="warp", **common)
    ours.reset(seed=0)
    policy, ended = kind(task, ours), np.zeros(num_envs, bool)
    apart = np.zeros((WINDOWS, len(TOLERANCE), num_envs))
    for step in range(WINDOWS * WINDOW):
        if step % WINDOW == 0:
            ours.reset(options={"reset_mask": ended})
            policy.reset(ended)
            ended[:] = False
        if step % handover == 0:
            theirs.set_state(ours.get_state())
        action = policy.act(ours, step)
        pairs = zip(look(ours, action), look(theirs, action), strict=True)
        now = np.array([np.abs(a - b).max(axis=1) for a, b in pairs])  # (kinds, N)
        window = apart[step // WINDOW]
        np.maximum(window, now, out=window, where=~ended)
        ended |= ours.engine.arm_force() > TOUCH_LIMIT
        ended |= ours.world.task.evaluate().fallen
    return apart


def parity(task: str, kind: type[Any], num_envs: int, handover: int) -> str:
    apart = differences(task, kind, num_envs, handover)
    cells = [f"{np.median(part):.0e} / {part.max():.0e}" for part in apart.swapaxes(0, 1)[:-1]]
    within = apart <= np.array(list(TOLERANCE.values()))[:, None]
    agreeing = within.all(axis=1)
    actions = kind.__name__.lower()
    return " | ".join([task, actions, *cells, f"{agreeing.sum()} of {agreeing.size}"])


def speed(task: str, engine: str, num_envs: int) -> str:
    env = VectorManipulation(task, num_envs, engine=engine, threads=1)
    env.reset(seed=0)
    actions = np.random.default_rng(0).normal(size=(WINDOW, *env.targets.shape))
    wall, cpu = time.perf_counter(), time.process_time()
    for action in actions:
        env.step(action)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    done = WINDOW * num_envs
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

    once, long = (
        [
            said(parity(task, kind, options.envs, handover))
            for task in options.tasks
            for kind in (Expert, Blind)
        ]
        for handover in (1, WINDOW)
    )
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
    tolerance = "; ".join(f"{name}: {value:g}" for name, value in TOLERANCE.items() if value)
    title = ["task", "actions", *list(TOLERANCE)[:-1], "agree"]
    report = [
        "# Two engines",
        "",
        f"Made by `{' '.join(['python -m benchmarks.engines', *arguments, '--write'])}` on "
        f"{describe()}, MuJoCo {mujoco.__version__}, MuJoCo Warp {mujoco_warp.__version__}, Warp "
        f"{warp.__version__} on its device {warp.get_device().name or 'cpu'!r}.",
        "",
        *(line.strip() for line in (__doc__ or "").splitlines()[4:]),
        "",
        "Largest differences within 50 steps, of the median environment / of all. Tolerance: "
        f"{tolerance}.",
        "",
        "The state is MuJoCo's before every step:",
        "",
        *table(title, once),
        "The state is MuJoCo's at the first of 50 steps:",
        "",
        *table(title, long),
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
