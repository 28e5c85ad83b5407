"""Makes the eight tasks known to Gymnasium, without importing MuJoCo."""

from __future__ import annotations

import gymnasium

from mimex.envs.settings import TASKS


def register_all() -> None:
    """Register `mimex/FrankaReach-v0` and the other seven; doing it again changes nothing."""
    for task in TASKS:
        env_id = f"mimex/{task}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="mimex.envs.single:Manipulation",
                vector_entry_point="mimex.envs.manipulation:VectorManipulation",
                # No max_episode_steps: the environment truncates by itself, at a length that
                # depends on the keyword arguments.
                kwargs={"task": task},
            )
