"""Where no bonus is needed: Stable-Baselines3's PPO with its defaults, without and with a bonus.

    python -m benchmarks.drop_in --seeds 5 --jobs 2

Every run is one environment and 60,000 steps, `with_bonus(env, bonus)` and nothing set. Finished
runs are kept in the folder `--out`, so that the same command continues; the curves are written to
`benchmarks/results/curves/drop_in.csv.gz`.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from benchmarks import curves
from mimex.files import replacing
from mimex.study.runs import Run

STEPS, EVERY = 60_000, 3_000
METHODS = ("none", "rnd", "mimex")


class Grid(gymnasium.Env[np.ndarray, int]):
    """An 8 x 8 grid whose far corner pays 1 and ends the episode; at most 100 steps."""

    SIDE, LIMIT = 8, 100
    MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(len(self.MOVES))
        self.cell, self.steps = np.zeros(2, int), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, Any]:
        super().reset(seed=seed)
        self.cell, self.steps = np.zeros(2, int), 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.cell = np.clip(self.cell + self.MOVES[int(action)], 0, self.SIDE - 1)
        self.steps += 1
        goal = bool((self.cell == self.SIDE - 1).all())
        return self._observation(), float(goal), goal, self.steps >= self.LIMIT, {}

    def _observation(self) -> np.ndarray:
        return (self.cell / (self.SIDE - 1)).astype(np.float32)


TASKS: dict[str, Any] = {
    "CartPole-v1": "CartPole-v1",
    "grid": Grid,
    "Acrobot-v1": "Acrobot-v1",
    "Pendulum-v1": "Pendulum-v1",
}


def train(task: str, method: str, seed: int) -> list[float]:
    """Return the mean return of the episodes that ended in each interval of `EVERY` steps."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    import mimex
    from mimex.interop.sb3 import with_bonus

    class Curve(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.ended: list[tuple[int, float]] = []

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:  # of the Monitor, which is inside of the bonus
                    self.ended.append((self.num_timesteps, info["episode"]["r"]))
            return True

    torch.set_num_threads(1)
    env = make_vec_env(TASKS[task], 1, seed=seed)
    bonus = {"rnd": mimex.RND, "mimex": mimex.MIMEx}.get(method)
    arguments = {"env": env} if bonus is None else with_bonus(env, bonus(seed=seed))
    curve = Curve()
    PPO("MlpPolicy", **arguments, seed=seed, device="cpu").learn(STEPS, callback=curve)
    steps, returns = (np.array(column) for column in zip(*curve.ended, strict=True))
    edges = range(0, STEPS, EVERY)
    inside = [returns[(steps > edge) & (steps <= edge + EVERY)] for edge in edges]
    return [float(some.mean()) if len(some) else float("nan") for some in inside]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("studies/drop_in"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    keys = [(t, m, s) for t in options.tasks for s in range(options.seeds) for m in METHODS]
    paths = {key: options.out / f"{'-'.join(map(str, key))}.json" for key in keys}
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        jobs = {pool.submit(train, *key): key for key in keys if not paths[key].exists()}
        for job in as_completed(jobs):
            with replacing(paths[jobs[job]]) as aside:
                aside.write_text(json.dumps(job.result()))
            print(*jobs[job], f"{np.nanmean(job.result()[-4:]):.1f}", flush=True)
    runs = {}
    for (task, method, seed), path in sorted(paths.items(), key=lambda item: keys.index(item[0])):
        returns = np.array(json.loads(path.read_text()))
        columns = {"step": EVERY * np.arange(1.0, len(returns) + 1), "train/return": returns}
        config = {"task": task, "seed": seed, "steps": STEPS}
        runs["drop_in", task, method, seed] = Run(path.stem, path, config, {}, columns)
    curves.write(curves.path_of("drop_in"), runs)


if __name__ == "__main__":
    main()
