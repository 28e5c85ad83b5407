"""Training speed by bonus, where the time goes, and PPO's update against Stable-Baselines3's.

    python -m benchmarks.train --write
    python -m benchmarks.train --plan benchmarks/plans/price.toml     the methods of a plan alone

Throughput is that of whole updates after the first, by wall-clock time, bonuses in turns; "per
CPU-second" divides by the processor time of the whole process, so that it does not depend on what
else runs on the machine. Ratios are medians over turns. PPO's updates take turns as well, each kind
in a process of its own, as its users have it; the first of each is not counted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from benchmarks.machine import describe
from mimex.agents.actions import ActionAdapter
from mimex.agents.encoders import ObsAdapter, VectorEncoder
from mimex.agents.ppo import PPO, PPOSettings
from mimex.agents.returns import Batch
from mimex.bonus import BONUSES
from mimex.commands.build import make_training
from mimex.config import TrainConfig, preset
from mimex.nn.parallel import available_cores, use_workers
from mimex.study.plan import read_plan

RESULTS = Path(__file__).parent / "results" / "train.md"
PARTS = ("simulation", "acting", "windows", "bonus", "learning")
OURS, THEIRS = "mimex", "Stable-Baselines3"
OBSERVATION, ACTION = 27, 9  # FrankaReach, oracle


class Measured:
    """A training with one bonus, measured update by update."""

    def __init__(self, config: TrainConfig) -> None:
        self.training = make_training(config)
        self._rows = self.training.train(sys.maxsize)
        next(self._rows)
        self.rows: list[dict[str, float]] = []
        self.steps = config.envs * config.loop.rollout_steps
        self.cpu = 0.0

    def update(self) -> None:
        """Make one rollout and the update on it."""
        start = time.process_time()
        self.rows.append(next(self._rows))
        self.cpu += time.process_time() - start

    @property
    def seconds(self) -> dict[str, float]:
        """Median seconds of each part of an update."""
        return {
            part: statistics.median(row.get(f"time/{part}", 0.0) for row in self.rows)
            for part in PARTS
        }

    @property
    def totals(self) -> list[float]:
        """Seconds of each update."""
        return [sum(row.get(f"time/{part}", 0.0) for part in PARTS) for row in self.rows]

    @property
    def per_cpu_second(self) -> float:
        """Environment steps per CPU-second."""
        return len(self.rows) * self.steps / self.cpu


def methods(options: argparse.Namespace) -> dict[str, TrainConfig]:
    """Settings by method: those of a plan, or every bonus with the settings of a preset."""
    if options.plan:
        runs = read_plan(options.plan).runs("cpu", seeds=1)
        return {", ".join(run.labels.values()): run.config() for run in runs}
    base = replace(preset(options.preset, task=options.task), envs=options.envs, reward="sparse")
    return {bonus: replace(base, bonus=bonus) for bonus in options.bonuses}


def throughput_table(options: argparse.Namespace) -> list[str]:
    """Return the table of speeds; methods take turns, so that machine load hits all alike."""
    lines = [
        "| bonus | steps/s | of none | per CPU-second | " + " | ".join(PARTS) + " |",
        "|---" * (4 + len(PARTS)) + "|",
    ]
    measured = {name: Measured(config) for name, config in methods(options).items()}
    for _ in range(options.updates):
        for each in measured.values():
            each.update()
    first = next(iter(measured.values())).totals
    for bonus, each in measured.items():
        total = sum(each.seconds.values())
        speed = each.steps / statistics.median(each.totals)
        shares = " | ".join(f"{s * 1e3:.0f} ms ({s / total:.0%})" for s in each.seconds.values())
        ratio = statistics.median(a / b for a, b in zip(first, each.totals, strict=True))
        each.training.env.close()
        lines.append(
            f"| {bonus} | {speed:,.0f} | {ratio:.0%} | {each.per_cpu_second:,.0f} | {shares} |"
        )
        print(lines[-1], flush=True)
    return lines


def ours(settings: PPOSettings, steps: int) -> Callable[[], object]:
    """Return one update of our PPO on a rollout of random data."""
    seen = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
    done = gymnasium.spaces.Box(-1, 1, (ACTION,), np.float32)
    agent = PPO(VectorEncoder(ObsAdapter(seen)), ActionAdapter(done), settings)
    stored = {"vector": torch.randn(steps, OBSERVATION)}
    actions, log_probs, _ = agent.act(stored)
    values = agent.values(stored)
    batch = Batch(stored, actions, log_probs, torch.randn(steps, 1), values, torch.randn(steps, 1))
    return lambda: agent.update(batch)


def theirs(settings: PPOSettings, steps: int, envs: int) -> Callable[[], object]:
    """Return one update of Stable-Baselines3's PPO with the same networks, batch and epochs."""
    import stable_baselines3
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import DummyVecEnv

    class Still(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (ACTION,), np.float32)

        def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
            return np.zeros(OBSERVATION, np.float32), {}

    agent = stable_baselines3.PPO(
        "MlpPolicy",
        DummyVecEnv([Still for _ in range(envs)]),
        n_steps=steps // envs,
        batch_size=steps // settings.minibatches,
        n_epochs=settings.epochs,
        clip_range=settings.clip,
        max_grad_norm=settings.grad_norm,
        ent_coef=0.0,
        vf_coef=settings.value_coef,
        policy_kwargs={
            "net_arch": {"pi": list(settings.hidden), "vf": list(settings.hidden)},
            "activation_fn": nn.SELU,
        },
        device="cpu",
    )
    agent.set_logger(Logger(None, []))
    buffer = agent.rollout_buffer
    generator = np.random.default_rng(0)
    for name in ("observations", "actions", "advantages", "returns", "values", "log_probs"):
        array = getattr(buffer, name)
        array[:] = generator.normal(size=array.shape)
    with torch.no_grad():
        flat = torch.as_tensor(buffer.observations.reshape(steps, OBSERVATION))
        taken = torch.as_tensor(buffer.actions.reshape(steps, ACTION))
        log_probs = agent.policy.evaluate_actions(flat, taken)[1]
    buffer.log_probs[:] = log_probs.numpy().reshape(buffer.log_probs.shape)
    buffer.full = True
    return agent.train


def _serve(orders: Connection, name: str, options: argparse.Namespace) -> None:
    """A process that makes one update whenever it receives a number of threads."""
    settings = preset(options.preset).ppo
    steps = options.envs * preset(options.preset).loop.rollout_steps
    call = ours(settings, steps) if name == OURS else theirs(settings, steps, options.envs)
    while threads := orders.recv():
        if name == OURS:
            use_workers(threads)
        else:
            torch.set_num_threads(threads)
        start = time.perf_counter()
        call()
        orders.send(time.perf_counter() - start)


def update_table(options: argparse.Namespace) -> list[str]:
    """Return the table of PPO updates by library and number of threads, measured in turns."""
    context = multiprocessing.get_context("spawn")
    pipes = {}
    for name in (THEIRS, OURS):
        pipes[name], end = context.Pipe()
        context.Process(target=_serve, args=(end, name, options), daemon=True).start()
    turns = [(name, threads) for name in pipes for threads in range(1, available_cores() + 1)]
    times: dict[tuple[str, int], list[float]] = {turn: [] for turn in turns}
    for _ in range(options.repeats + 1):
        for name, threads in turns:
            pipes[name].send(threads)
            times[name, threads].append(pipes[name].recv())
    for pipe in pipes.values():
        pipe.send(0)
    medians = {turn: statistics.median(taken[1:]) for turn, taken in times.items()}
    fastest = min((turn for turn in turns if turn[0] == THEIRS), key=medians.__getitem__)
    lines = ["| PPO's update | threads | ms | of the fastest other |", "|---|---|---|---|"]
    for turn, took in medians.items():
        ratios = [a / b for a, b in zip(times[fastest][1:], times[turn][1:], strict=True)]
        ratio = f"{statistics.median(ratios):.2f}x" if turn[0] == OURS else ""
        lines.append(f"| {turn[0]} | {turn[1]} | {took * 1e3:.0f} | {ratio} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure, print, and with --write keep the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="FrankaReach")
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--plan", type=Path, help="compare the methods of this plan")
    parser.add_argument("--envs", type=int, default=512)
    parser.add_argument("--updates", type=int, default=20, help="updates of each method")
    parser.add_argument("--repeats", type=int, default=15, help="repeats of PPO's update alone")
    parser.add_argument("--bonuses", nargs="+", default=list(BONUSES), choices=BONUSES)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    command = " ".join(["python -m benchmarks.train", *arguments, "--write"])
    updates = [] if options.plan else update_table(options)
    use_workers(available_cores())
    report = [
        "# Speed of training",
        "",
        f"Made by `{command}` on {describe()}.",
        "",
        *(line.strip() for line in (__doc__ or "").splitlines()[4:]),
        "",
        *throughput_table(options),
        "",
        *updates,
    ]
    if options.write:
        path = RESULTS.with_name(f"{options.plan.stem}.md") if options.plan else RESULTS
        path.write_text("\n".join(report) + "\n")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
