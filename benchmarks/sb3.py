"""The bonus in Stable-Baselines3: what it costs, and what it brings on a sparse task.

    python -m benchmarks.sb3            steps/s of PPO alone and with each way to add a bonus
    python -m benchmarks.sb3 --learn    PPO with and without MIMEx on a sparse task, three seeds
    ... --write                         also writes benchmarks/results/sb3/

The task is Gymnasium's MountainCar-v0 with one change: the reward is 1 at the flag and 0 before
(the original pays -1 a step). A random policy does not reach the flag, which is 1.0 away from the
valley, so without a bonus there is nothing to learn from.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

import mimex
from benchmarks.machine import describe
from mimex.interop.sb3 import BonusRolloutBuffer, BonusVecEnv

RESULTS = Path(__file__).parent / "results" / "sb3"
ENVS = 8
LEARN_STEPS = 100_000
SEEDS = (0, 1, 2)
REPORT_EVERY = 4_000  # steps between two points of a curve
OVERHEAD_STEPS = 8_192
REPEATS = 3


class SparseMountainCar(gymnasium.Wrapper[Any, Any, Any, Any]):
    """MountainCar-v0 that pays 1 at the flag and nothing before."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(terminated), terminated, truncated, info


def make_ppo(env: VecEnv, seed: int, **kwargs: Any) -> PPO:
    """PPO that sees normalised observations: the car's velocity is 0.07 at most."""
    env = VecNormalize(env, norm_reward=False)
    return PPO(
        "MlpPolicy", env, n_steps=64, batch_size=128, n_epochs=4, gamma=0.99, gae_lambda=0.98,
        seed=seed, device="cpu", **kwargs,
    )  # fmt: skip


def make_model(way: str, seed: int) -> PPO:
    """PPO with the bonus that ``way`` names, or with none."""
    env = make_vec_env("MountainCar-v0", ENVS, seed=seed, wrapper_class=SparseMountainCar)
    if way == "none":
        return make_ppo(env, seed)
    name, _, how = way.partition(" ")
    bonus = {"mimex": mimex.MIMEx, "rnd": mimex.RND}[name](normalise=True, seed=seed)
    wrapped = BonusVecEnv(
        env,
        bonus,
        train_fraction=0.25 if how.endswith("quarter") else 1.0,
    )
    if how.startswith("step"):
        return make_ppo(wrapped, seed)
    buffer = {"bonus": wrapped.at_once()}
    return make_ppo(
        wrapped, seed, rollout_buffer_class=BonusRolloutBuffer, rollout_buffer_kwargs=buffer
    )


WAYS = {
    "none": "PPO alone",
    "rnd rollout": "RND, a rollout at once",
    "rnd step": "RND, step by step",
    "mimex rollout": "MIMEx, a rollout at once",
    "mimex rollout quarter": "MIMEx, a rollout at once, trained on a quarter",
    "mimex step": "MIMEx, step by step",
}


def overhead(steps: int) -> list[str]:
    """Steps/s of each way, a median of repeats that take turns, so that all see the same load."""
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    for repeat in range(REPEATS):
        for way, measured in speeds.items():
            model = make_model(way, seed=repeat)
            start = time.perf_counter()
            model.learn(steps)
            measured.append(steps / (time.perf_counter() - start))
    alone = statistics.median(speeds["none"])
    rows = ["| | steps/s | of PPO alone |", "|---|---|---|"]
    for way, measured in speeds.items():
        speed = statistics.median(measured)
        rows.append(f"| {WAYS[way]} | {speed:,.0f} | {speed / alone:.0%} |")
    return rows


class Curve(BaseCallback):
    """Success rate and length of the episodes that ended since the last point."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[dict[str, float]] = []
        self._lengths: list[int] = []

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        self._lengths += [info["episode"]["l"] for info in infos if "episode" in info]
        if self.num_timesteps % REPORT_EVERY < ENVS and self._lengths:
            reached = [length < 200 for length in self._lengths]  # the time limit is 200
            point = {"steps": self.num_timesteps, "success": float(np.mean(reached))}
            self.points.append(point | {"length": float(np.mean(self._lengths))})
            self._lengths = []
        return True


def learn(steps: int, seeds: tuple[int, ...], folder: Path) -> None:
    """Trains with and without the bonus and writes a curve for each seed."""
    folder.mkdir(parents=True, exist_ok=True)
    for way in ("none", "mimex rollout"):
        for seed in seeds:
            curve, start = Curve(), time.perf_counter()
            make_model(way, seed).learn(steps, callback=curve)
            name = f"{way.split()[0]}_seed{seed}.jsonl"
            (folder / name).write_text("".join(json.dumps(p) + "\n" for p in curve.points))
            took, last = time.perf_counter() - start, curve.points[-1]
            print(f"{name}: success {last['success']:.0%} at {steps:,} steps, {took:.0f} s")
    draw(folder)


def draw(folder: Path) -> None:
    """Draws the curves of a folder."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for way, label, colour in (("mimex", "PPO + MIMEx", "C0"), ("none", "PPO", "C7")):
        curves = [
            [json.loads(line) for line in path.read_text().splitlines()]
            for path in sorted(folder.glob(f"{way}_seed*.jsonl"))
        ]
        for curve in curves:
            xs, ys = [p["steps"] for p in curve], [p["success"] for p in curve]
            axes.plot(xs, ys, color=colour, alpha=0.35, linewidth=1)
        shared = min(len(curve) for curve in curves)
        mean = [np.mean([curve[i]["success"] for curve in curves]) for i in range(shared)]
        xs = [p["steps"] for p in curves[0][:shared]]
        axes.plot(xs, mean, color=colour, linewidth=2, label=f"{label} (mean of {len(curves)})")
    axes.set(xlabel="environment steps", ylabel="episodes that reach the flag", ylim=(-0.03, 1.03))
    axes.set_title("MountainCar, reward at the flag only", fontsize=10)
    axes.legend(frameon=False)
    figure.savefig(folder / "sb3.png", dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--learn", action="store_true", help="train instead of measuring speed")
    parser.add_argument("--steps", type=int, help="environment steps of each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}/ of results")
    parser.add_argument("--folder", type=Path, help="write the curves there instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.learn:
        folder = options.folder or (RESULTS if options.write else Path("sb3-curves"))
        learn(options.steps or LEARN_STEPS, tuple(options.seeds), folder)
        return
    rows = overhead(options.steps or OVERHEAD_STEPS)
    text = "\n".join(
        [
            "# The bonus in Stable-Baselines3: speed",
            "",
            "    python -m benchmarks.sb3 --write",
            "",
            f"PPO, {ENVS} MountainCar environments, one thread, one run; {describe()}.",
            "",
            *rows,
            "",
        ]
    )
    print(text)
    if options.write:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / "overhead.md").write_text(text)


if __name__ == "__main__":
    main()
