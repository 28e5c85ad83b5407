"""Contrast on Franka and Kuka tasks from state; ``python -m benchmarks.contrast --robots``.

Seen are windows of noise (standard deviation 1, clamped); never seen those of the second half of a
scripted expert's way to its first success (FrankaPick: the cube is lifted).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

import mimex
import mimex.envs
from benchmarks.contrast import (
    BATCH,
    BONUSES,
    LENGTH,
    THE_PAPERS,
    WHOLE_STEPS,
    Draw,
    contrasts,
    make,
    table,
)
from benchmarks.random_targets import RandomTargets
from mimex.bonus.base import IntrinsicReward
from mimex.bonus.masks import LastMask
from mimex.envs.experts import expert_for
from mimex.types import Window

ONE_GOAL = {"goal_spread": 0.0, "episode_steps": 100}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    **{task: (task, {}) for task in ("FrankaReach", "FrankaPick", "KukaReach", "KukaPick")},
    "FrankaReach, far goal": ("FrankaReach", ONE_GOAL | {"goal_offset": (0.0, 0.0, 0.35)}),
    "KukaReach, far goal": ("KukaReach", ONE_GOAL | {"goal_offset": (0.0, 0.4, 0.4)}),
}
"""Tasks and their settings; the far goals are FrankaReachUp and KukaReachLeft."""

AFTER, ENVS, STEPS = (50, 200, 800), 64, 256

Row = tuple[str | type[IntrinsicReward], int, dict[str, Any]]
"""The bonus, the stride of windows, settings."""

ROWS: dict[str, Row] = {
    **{name: (name, 1, {}) for name in BONUSES if name not in ("none", "constant", "count")},
    "mimex, whole steps": ("mimex", 1, WHOLE_STEPS),
    "mimex, the paper's": ("mimex", 1, THE_PAPERS),
    "mimex, whole steps, stride 8, actions": ("mimex", 8, {"action_dim": True, **WHOLE_STEPS}),
    "the same, newest step hidden": ("mimex", 8, {"action_dim": True, "mask": LastMask()}),
    "mimex, random targets": (RandomTargets, 1, WHOLE_STEPS),
}


def play(name: str, *, expert: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Observations, actions, ends and "within the part that is scored", ``(M, N, ...)`` each."""
    task, settings = TASKS[name]
    env: Any = gymnasium.make_vec(
        f"mimex/{task}-v0", num_envs=ENVS, observation="oracle", **settings
    )
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


def windows(task: str, stride: int, *, expert: bool) -> Window:
    """All full windows of the part that is scored, or learned from."""
    features, actions, ends, scored = play(task, expert=expert)
    found = mimex.RolloutWindows(LENGTH, ENVS, stride=stride).build(features, ends, actions=actions)
    full = (found.rows > 0).all(1) & scored.flatten()
    return found[full.nonzero().flatten()]


@functools.cache
def drawn(task: str, stride: int) -> Draw:
    """Random windows of noise, of which a fifth is held out, or of the expert."""
    seen, unseen = (windows(task, stride, expert=expert) for expert in (False, True))
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(seen), generator=generator)
    held, learned = order[: len(order) // 5], order[len(order) // 5 :]

    def draw(count: int, new: bool) -> Window:
        if new:
            return unseen[torch.randint(len(unseen), (count,), generator=generator)]
        rows = learned if count == BATCH else held
        return seen[rows[torch.randint(len(rows), (count,), generator=generator)]]

    return draw


def cell(row: Row, task: str) -> Iterator[float]:
    """Contrasts of one bonus on one task."""
    name, stride, settings = row
    draw = drawn(task, stride)
    actions = draw(1, True).actions
    assert actions is not None
    if settings.get("action_dim"):
        settings = settings | {"action_dim": actions.shape[2]}
    return contrasts(make(name, **settings), draw, AFTER)


def robot_table() -> str:
    """All bonuses over the tasks."""
    return table({task: task for task in TASKS}, ROWS, cell)
