"""PPO of Stable-Baselines3 on small sparse tasks, with no setting of the bonus: does it help?

    python -m benchmarks.drop_in                      curves, table and figure in results/drop_in/
    python -m benchmarks.drop_in --betas 0.1 0.3 1    the same over beta, in results/drop_in_beta/
    python -m benchmarks.drop_in --overhead           what each way costs, in results/drop_in/

Each run is one file, written when the run is over; the same command makes the missing ones, so it
can be interrupted. A curve is the return of the task alone, episode by episode. Overhead is of
short runs that take turns, in CPU seconds of one thread (machines are shared): PPO alone beside
what each takes in the same turn.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

import mimex
from benchmarks.machine import describe
from benchmarks.tasks import TASKS, TITLES
from mimex.interop.sb3 import BonusRolloutBuffer, BonusVecEnv

RESULTS = Path(__file__).parent / "results"
ENVS, STEPS, SEEDS, POINTS = 8, 40_000, (0, 1, 2), 20
ROLLOUT = 2_048
"""Steps of a rollout: Stable-Baselines3's default with one environment, here shared by eight."""

SPARSE = ("flag", "acrobot", "upright", "maze")
METHODS = ("none", "constant", "rnd", "mimex")


def make_model(task: str, method: str, beta: float | None, seed: int, at_once: bool = True) -> PPO:
    """PPO on a task, with the bonus as its documentation says; its settings are its own."""
    env: VecEnv = make_vec_env(TASKS[task], ENVS, seed=seed)
    settings: dict[str, Any] = {"n_steps": ROLLOUT // ENVS}
    if method != "none":
        bonus: Any = mimex.ConstantBonus()
        if method != "constant":  # the control, which learns nothing
            bonus = {"mimex": mimex.MIMEx, "rnd": mimex.RND}[method](normalise=True, seed=seed)
        env = BonusVecEnv(env, bonus, **({} if beta is None else {"beta": beta}))
        if at_once:
            settings["rollout_buffer_class"] = BonusRolloutBuffer
            settings["rollout_buffer_kwargs"] = {"bonus": env.at_once()}
    if task not in ("maze",):
        env = VecNormalize(env, norm_reward=False)
    return PPO("MlpPolicy", env, seed=seed, device="cpu", **settings)


class Curve(BaseCallback):
    """The mean return of the episodes that ended since the last point."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every, self.points, self._returns = every, [], []
        self._next = every

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        self._returns += [info["episode"]["r"] for info in infos if "episode" in info]
        if self.num_timesteps >= self._next:
            mean = float(np.mean(self._returns)) if self._returns else None
            self.points.append({"steps": self.num_timesteps, "return": mean})
            self._returns, self._next = [], self._next + self.every
        return True


def run(
    path: Path, task: str, method: str, beta: float | None, seed: int, options: argparse.Namespace
) -> None:
    """Makes one run, unless it was made before."""
    if path.exists():
        return
    curve = Curve(max(1, options.steps // POINTS))
    make_model(task, method, beta, seed).learn(options.steps, callback=curve)
    about = {"task": task, "method": method, "beta": beta, "seed": seed}
    part = path.with_suffix(".part")
    part.write_text("".join(json.dumps(row) + "\n" for row in [about, *curve.points]))
    part.rename(path)
    print(f"{path.stem}: {curve.points[-1]['return']}", flush=True)


def read(folder: Path) -> dict[tuple[str, str], list[list[dict[str, Any]]]]:
    """All runs of a folder by task and method: a line about the run, then its points."""
    found: dict[tuple[str, str], list[list[dict[str, Any]]]] = {}
    runs = [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in folder.glob("*.jsonl")
    ]
    places = {name: place for place, name in enumerate((*TASKS, *METHODS))}
    for rows in sorted(
        runs,
        key=lambda run: tuple(
            places.get(run[0][name], run[0][name] or 0)
            for name in ("task", "method", "beta", "seed")
        ),
    ):
        about = rows[0]
        label = about["method"] + ("" if about["beta"] is None else f" {about['beta']:g}")
        found.setdefault((about["task"], label), []).append(rows)
    return found


def last_fifth(rows: list[dict[str, Any]]) -> float:
    """The mean return of the last fifth of a run."""
    points = [row["return"] for row in rows[1:] if row["return"] is not None]
    return float(np.mean(points[-max(1, len(points) // 5) :]))


def table(folder: Path) -> str:
    """Returns at the end, by task and method."""
    runs = read(folder)
    tasks, labels = ({key[i]: None for key in runs} for i in (0, 1))
    lines = ["| task | " + " | ".join(labels) + " |", "|---" * (len(labels) + 1) + "|"]
    for task in tasks:
        cells = []
        for label in labels:
            ends = [last_fifth(rows) for rows in runs.get((task, label), [])]
            cells.append(", ".join(f"{end:.3g}" for end in ends))
        lines.append(f"| {TITLES[task]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


WAYS = {
    "PPO alone": ("none", True),
    "RND, a rollout at once": ("rnd", True),
    "MIMEx, a rollout at once": ("mimex", True),
    "RND, step by step": ("rnd", False),
    "MIMEx, step by step": ("mimex", False),
}


def overhead(turns: int) -> str:
    """CPU seconds of PPO alone beside those with a bonus, a row a way and task."""
    rows = ["| | MountainCar, two numbers | four rooms, 169 codes |", "|---|---|---|"]
    cells: dict[str, list[str]] = {way: [] for way in WAYS}
    for task in ("flag", "maze"):
        shares: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(turns):
            taken = {}
            for way, (method, at_once) in WAYS.items():
                model = make_model(task, method, None, turn, at_once)
                start = time.process_time()
                model.learn(2 * ROLLOUT)
                taken[way] = time.process_time() - start
            for way, seconds in taken.items():
                shares[way].append(taken["PPO alone"] / seconds)
        for way, found in shares.items():
            cells[way].append(f"{np.median(found):.0%} ({min(found):.0%} to {max(found):.0%})")
    rows += [f"| {way} | {' | '.join(found)} |" for way, found in cells.items()]
    return "\n".join(rows)


def draw(folder: Path) -> None:
    """One panel a task: thin lines are seeds, thick ones their mean."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    runs = read(folder)
    tasks, labels = (list({key[i]: None for key in runs}) for i in (0, 1))
    figure, axes = plt.subplots(
        1, len(tasks), figsize=(4 * len(tasks), 3.2), layout="constrained", squeeze=False
    )
    for panel, task in zip(axes[0], tasks, strict=True):
        for colour, label in enumerate(labels):
            curves = [
                [(row["steps"], row["return"]) for row in rows[1:] if row["return"] is not None]
                for rows in runs.get((task, label), [])
            ]
            for curve in curves:
                panel.plot(*zip(*curve, strict=True), color=f"C{colour}", alpha=0.3, linewidth=1)
            shared = min(map(len, curves), default=0)
            if shared:
                xs, ys = np.mean([curve[:shared] for curve in curves], axis=0).T
                panel.plot(xs, ys, color=f"C{colour}", linewidth=2, label=label)
        panel.set(title=TITLES[task], xlabel="environment steps", ylabel="return of the task")
    axes[0][0].legend(frameon=False)
    figure.savefig(folder / "curves.png", dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=SPARSE, choices=list(TASKS))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--betas", type=float, nargs="+", help="instead of the default one")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--overhead", type=int, nargs="?", const=5, help="turns; no curves")
    parser.add_argument("--folder", type=Path, help="of the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = options.folder or RESULTS / ("drop_in_beta" if options.betas else "drop_in")
    folder.mkdir(parents=True, exist_ok=True)
    if options.overhead:
        text = (
            "# The bonus in Stable-Baselines3: speed of PPO alone, median and range of "
            f"{options.overhead} turns\n\n    python -m benchmarks.drop_in --overhead\n\nBy CPU "
            f"seconds, other work beside it; {describe()}.\n\n{overhead(options.overhead)}\n"
        )
        (folder / "overhead.md").write_text(text)
        print(text)
        return
    for seed, task, method in itertools.product(options.seeds, options.tasks, options.methods):
        for beta in (None,) if method == "none" else options.betas or (None,):
            name = f"{task}-{method}" + ("" if beta is None else f"-{beta:g}")
            run(folder / f"{name}-{seed}.jsonl", task, method, beta, seed, options)
    draw(folder)
    command = " ".join(["python -m benchmarks.drop_in", *sys.argv[1:]])
    text = (
        "# The bonus as a drop-in: return of the task in the last fifth, seed by seed\n\n"
        f"    {command}\n\nPPO of Stable-Baselines3 as it is, "
        f"{ENVS} environments, rollouts of {ROLLOUT:,} steps in all as with one; "
        f"{options.steps:,} steps; {describe()}.\n\n{table(folder)}\n"
    )
    (folder / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
