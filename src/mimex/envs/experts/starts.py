"""Initial states from expert episodes: an oracle baseline for exploration.

An agent that starts some of its episodes in states of a solution does not have to find it. If it
learns the task only with these starts, then exploration is what makes the task hard.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimex.envs.engine import Array
from mimex.envs.experts.play import expert_for
from mimex.envs.manipulation import VectorManipulation
from mimex.envs.settings import Settings

EPISODES, EVERY = 32, 5
"""Number of expert episodes, and steps between the states taken from them."""


def expert_starts(task: str, settings: Settings) -> dict[str, Array]:
    """Return states (M, ...) of an expert's episodes before success, with a fixed seed.

    Args:
        task: Task name, such as "FrankaPick".
        settings: Settings of the environments that will start there.
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
