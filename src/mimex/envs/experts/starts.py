"""Starts along an expert's way: a cheat that tells whether exploration is what makes a task hard.

An agent that begins some of its episodes where a solution passes need not find it. If it then
learns what it does not learn otherwise, the reward suffices and finding it was the problem.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mimex.envs.arrays import to_numpy
from mimex.envs.engine import Array
from mimex.envs.experts.play import expert_for
from mimex.envs.manipulation import VectorManipulation
from mimex.envs.settings import Settings

EPISODES, EVERY = 32, 5
"""Episodes of the expert, and steps from one start to the next."""


class Starts(NamedTuple):
    """M states that an expert passed on its way to success."""

    physics: Array  # (M, numbers) of the engine
    targets: Array  # (M, joints)
    memory: dict[str, Array]  # (M, ...) each: what the task keeps within an episode


def expert_starts(task: str, settings: Settings) -> Starts:
    """Lets a task's expert play, always the same episodes, and keeps where it came by.

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
            kept_by_task = env.world.task.memory.items()
            memory = {name: to_numpy(array)[running] for name, array in kept_by_task}
            targets = to_numpy(env.targets)[running]
            kept.append(Starts(env.engine.state()[running], targets, memory))
        _, _, terminated, truncated, info = env.step(expert.act(env))
        running &= ~(terminated | truncated | info["success"])
        if not running.any():
            break
    env.close()
    return Starts(
        np.concatenate([some.physics for some in kept]),
        np.concatenate([some.targets for some in kept]),
        {name: np.concatenate([some.memory[name] for some in kept]) for name in kept[0].memory},
    )
