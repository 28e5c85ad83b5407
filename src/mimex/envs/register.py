"""Makes the tasks known to Gymnasium, without importing MuJoCo or dm_control."""

from __future__ import annotations

import gymnasium

from mimex.envs.dmc_tasks import NAMES, PREFIX
from mimex.envs.settings import TASKS


def register_all() -> None:
    """Register `mimex/FrankaReach-v0` and the other seven, small games, `dmc/cartpole_swingup` ...

    Doing it again changes nothing. There is no max_episode_steps: the environments truncate by
    themselves, at a length that depends on the keyword arguments.
    """
    for task in TASKS:
        _register(
            f"mimex/{task}-v0", task, "single:Manipulation", "manipulation:VectorManipulation"
        )
    for game in ("small:DeepSea", "small:OrderedButtons", "motion:PointMaze", "motion:FlagCar"):
        if (env_id := f"mimex/{game.partition(':')[2]}-v0") not in gymnasium.registry:
            gymnasium.register(id=env_id, vector_entry_point=f"mimex.envs.{game}")
    for task in NAMES:  # without a version of ours: dm_control's counts
        _register(f"{PREFIX}{task}", task, "dmc:DMC", "dmc_vector:VectorDMC")


def _register(env_id: str, task: str, single: str, vector: str) -> None:
    if env_id not in gymnasium.registry:
        gymnasium.register(
            id=env_id,
            entry_point=f"mimex.envs.{single}",
            vector_entry_point=f"mimex.envs.{vector}",
            kwargs={"task": task},
        )
