"""Contrast on Franka and Kuka tasks from state; ``python -m benchmarks.contrast --robots``.

Seen are windows of noise (standard deviation 1, clamped); never seen those of the second half of a
scripted expert's way to its first success (FrankaPick: the cube is lifted).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

import mimex
import mimex.envs
from mimex.bonus.base import IntrinsicReward
from mimex.bonus.masks import LastMask
from mimex.data.windows import WindowIndex
from mimex.envs.experts import expert_for
from mimex.nn.running import RunningMeanStd

TASKS = ("FrankaReach", "FrankaPick", "KukaReach", "KukaPick")
AFTER, BATCH, ENVS, STEPS = (50, 200, 800), 512, 64, 256
HELD_OUT = 2_000  # windows

Made = tuple[Callable[[int, int], IntrinsicReward], int]

BONUSES: dict[str, Made] = {  # how it is made of feature_dim and action_dim, and its stride
    "RND": (lambda d, a: mimex.RND(d, 5), 1),
    "ICM": (lambda d, a: mimex.ICM(d, a, 5), 1),
    "pseudo-count": (lambda d, a: mimex.PseudoCount(d, 5), 1),
    "MIMEx, 1e-4 (default)": (lambda d, a: mimex.MIMEx(d), 1),
    "MIMEx, 1e-3": (lambda d, a: mimex.MIMEx(d, lr=1e-3), 1),
    "MIMEx, 1e-3, actions": (lambda d, a: mimex.MIMEx(d, lr=1e-3, action_dim=a), 1),
    "MIMEx, 1e-3, stride 8": (lambda d, a: mimex.MIMEx(d, lr=1e-3), 8),
    "MIMEx, 1e-3, stride 8, actions": (lambda d, a: mimex.MIMEx(d, lr=1e-3, action_dim=a), 8),
    "the same, newest step hidden": (
        lambda d, a: mimex.MIMEx(d, lr=1e-3, action_dim=a, mask=LastMask()),
        8,
    ),
}


def play(task: str, *, expert: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Observations, actions, ends and "within the part that is scored", ``(M, N, ...)`` each."""
    env: Any = gymnasium.make_vec(f"mimex/{task}-v0", num_envs=ENVS, observation="oracle")
    observation, _ = env.reset(seed=1 if expert else 0)
    rng, solver = np.random.default_rng(0), expert_for(task)(env) if expert else None
    observations, actions, ends = [], [], []
    running, lengths = np.ones(ENVS, bool), np.zeros(ENVS, int)
    limit = 1_000 if expert else STEPS
    while len(ends) < limit and running.any():
        noise = rng.normal(size=env.action_space.shape).clip(-1, 1).astype(np.float32)
        action = noise if solver is None else solver.act(env)
        observations.append(observation.copy())
        actions.append(np.asarray(action, np.float32))
        observation, _, terminated, truncated, info = env.step(action)
        ends.append(terminated | truncated)
        if expert:
            lengths[running] = len(ends)
            running &= ~(ends[-1] | info["success"])
    env.close()
    age = np.arange(len(ends))[:, None]
    scored = (age >= lengths // 2) & (age < lengths) if expert else np.ones((len(ends), ENVS), bool)
    return (
        torch.as_tensor(np.stack(observations)).float(),
        torch.as_tensor(np.stack(actions)),
        torch.as_tensor(np.stack(ends)),
        torch.as_tensor(scored),
    )


def index(data: tuple[Tensor, Tensor, Tensor, Tensor], stride: int) -> tuple[WindowIndex, Tensor]:
    """Windows of all steps, and the rows of those to score that are full."""
    features, actions, ends, scored = data
    found = mimex.RolloutWindows(5, ENVS, stride=stride).build(features, ends, actions=actions)
    full = (found.rows > 0).all(1) & scored.flatten()
    return found, full.nonzero().flatten()


def contrasts(made: Made, noise: Any, expert: Any) -> str:
    """Never seen over seen after so many steps of learning."""
    make, stride = made
    bonus = make(noise[0].shape[2], noise[1].shape[2])
    (seen, rows), (unseen, others) = index(noise, stride), index(expert, stride)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    held, learned = rows[order[:HELD_OUT]], rows[order[HELD_OUT:]]
    some = others[torch.randperm(len(others), generator=torch.Generator().manual_seed(0))]
    generator, cells = torch.Generator().manual_seed(1), []
    for step in range(1, max(AFTER) + 1):
        bonus.learn(seen[learned[torch.randint(len(learned), (BATCH,), generator=generator)]])
        if step in AFTER:
            ratio = bonus.reward(unseen[some[:HELD_OUT]]).mean() / bonus.reward(seen[held]).mean()
            cells.append(f"{float(ratio):.3g}")
    return " / ".join(cells)


def robot_rows() -> list[str]:
    """One row a bonus over the tasks."""
    data = {}
    for task in TASKS:
        noise, expert = play(task, expert=False), play(task, expert=True)
        statistics = RunningMeanStd((noise[0].shape[2],))
        statistics.update(noise[0].flatten(0, 1))
        data[task] = tuple(
            (statistics.normalise(part[0], 5.0).float(), *part[1:]) for part in (noise, expert)
        )
    rows = [f"| bonus | {' | '.join(TASKS)} |", "|---" * (len(TASKS) + 1) + "|"]
    for name, made in BONUSES.items():
        cells = [contrasts(made, *data[task]) for task in TASKS]
        rows.append(f"| {name} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    return rows
