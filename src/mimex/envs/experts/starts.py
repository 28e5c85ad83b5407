"""Starts along an expert's way: a cheat that tells whether exploration is what makes a task hard.

An agent that begins some of its episodes where a solution passes need not find it. If it then
learns what it does not learn otherwise, the reward suffices and finding it was the problem.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimex.envs.engine import Array
from mimex.envs.experts.play import expert_for
from mimex.envs.manipulation import VectorManipulation
from mimex.envs.settings import Settings

EPISODES, EVERY = 32, 5
"""Episodes of the expert, and steps from one start to the next."""


def expert_starts(task: str, settings: Settings) -> dict[str, Array]:
    """Return states (M, ...) of an expert's successful episodes, always the same ones.

    Args:
        task: A task's name, such as "FrankaPick".
        settings: Of the environments that are to begin there.
    """
    plain = replace(
        settings, expert_starts=0.0, episode_steps=None, observation="oracle", threads=1
    )
    env = VectorManipulation(task, EPISODES, **vars(plain))
    env.reset(seed=0)
    expert = expert_for(task)(env)
    running, kept = np.ones(EPISODES, bool), []
    for step in range(env.episode_steps):
        if step % EVERY == 0:
            kept.append({name: array[running] for name, array in env.snapshot().items()})
        _, _, terminated, truncated, info = env.step(expert.act(env))
        running &= ~(terminated | truncated | info["success"])
        if not running.any():
            break
    env.close()
    return {name: np.concatenate([some[name] for some in kept]) for name in kept[0]}
