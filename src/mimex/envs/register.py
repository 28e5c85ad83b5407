"""Registers all environments with Gymnasium, without importing MuJoCo or dm_control."""

from __future__ import annotations

from typing import Any

import gymnasium

from mimex.envs import catalog, dmc_tasks


def register_all() -> None:
    """Register PixMC-Sparse (`mimex/FrankaReach-v0`, ...), the small games and `dmc/...`.

    Repeated calls have no effect. There is no max_episode_steps: the environments truncate
    themselves, at a length that depends on their keyword arguments.
    """
    for name in catalog.NAMES:
        task, settings = catalog.VARIANTS.get(name, (name, {}))
        entries = "single:Manipulation", "manipulation:VectorManipulation"
        _register(f"mimex/{name}-v0", *entries, task=task, **settings)
    for game in ("DeepSea", "OrderedButtons", "FlagCar"):
        if (env_id := f"mimex/{game}-v0") not in gymnasium.registry:
            gymnasium.register(id=env_id, vector_entry_point=f"mimex.envs.small:{game}")
    for task in dmc_tasks.NAMES:  # versioned by dm_control
        _register(f"{dmc_tasks.PREFIX}{task}", "dmc:DMC", "dmc_vector:VectorDMC", task=task)


def _register(env_id: str, single: str, vector: str, **arguments: Any) -> None:
    if env_id not in gymnasium.registry:
        gymnasium.register(
            id=env_id,
            entry_point=f"mimex.envs.{single}",
            vector_entry_point=f"mimex.envs.{vector}",
            kwargs=arguments,
        )
