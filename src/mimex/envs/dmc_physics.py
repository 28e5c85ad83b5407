"""Loading dm_control tasks, their action bounds, and saving their full state."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from ctypes.util import find_library
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from mimex.envs.dmc_tasks import domain_and_task
from mimex.extras import optional_import

_TEXTURE_PREFIX = "tex_"
"""Model arrays with this prefix are megabytes of textures, which no task changes."""


def dm_control_suite() -> Any:
    """Import `dm_control.suite`, or raise with the command that installs it."""
    if platform.system() == "Linux" and "MUJOCO_GL" not in os.environ and find_library("EGL"):
        # By default dm_control tries GLFW first, which warns if there is no display.
        os.environ["MUJOCO_GL"] = "egl"
    with optional_import("dmc/"):
        from dm_control import suite
    return suite


def load_suite(task: str) -> Any:
    """Return the dm_control environment of a task, for example "cartpole_swingup"."""
    domain, name = domain_and_task(task)
    # The lqr tasks draw their model from the generator they are created with; a fixed seed keeps
    # saved states compatible. Episodes are random until `reset` is given a seed.
    environment = dm_control_suite().load(domain, name, task_kwargs={"random": 0})
    environment.task.random.seed()
    return environment


def action_bounds(spec: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lower and upper action bounds; unbounded dimensions get -1 and 1."""
    if np.issubdtype(spec.dtype, np.integer):
        raise ValueError(
            f"the task's actions are {spec.dtype} ({spec}), but must be floats: DrQ-v2 and this "
            "adapter support continuous actions only; choose a continuous task, or map the "
            "discrete actions to continuous ones"
        )
    low, high = (np.broadcast_to(np.asarray(b, float), spec.shape) for b in _limits(spec))
    limited = (np.abs(low) < mujoco.mjMAXVAL) & (np.abs(high) < mujoco.mjMAXVAL)
    return np.where(limited, low, -1.0), np.where(limited, high, 1.0)


def _limits(spec: Any) -> tuple[Any, Any]:
    return getattr(spec, "minimum", -np.inf), getattr(spec, "maximum", np.inf)


class Memory:
    """The full state of a dm_control environment.

    Besides the physics, it has the task's generator and attributes, and the changes that the task
    made to the model since it was created (targets, terrain, gains).
    """

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._model, self._data = environment.physics.model.ptr, environment.physics.data.ptr
        self._initial = {name: array.copy() for name, array in self._arrays().items()}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return views of the model's arrays by name."""
        found = {
            name: getattr(self._model, name)
            for name in dir(self._model)
            if not name.startswith(("_", _TEXTURE_PREFIX))
        }
        return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}

    def get(self) -> dict[str, Any]:
        """Return a copy of the state, as arrays and JSON-serializable values."""
        spec = mujoco.mjtState.mjSTATE_INTEGRATION.value
        physics = np.empty(mujoco.mj_stateSize(self._model, spec))
        mujoco.mj_getState(self._model, self._data, physics, spec)
        kind, keys, position, has_normal, normal = self._environment.task.random.get_state()
        return {
            "physics": physics,
            "steps": self._environment._step_count,
            "ended": self._environment._reset_next_step,
            "random": {
                "kind": kind,
                "keys": keys,
                "place": position,
                "has_normal": has_normal,
                "normal": normal,
            },
            "task": {
                name: np.array(value)
                for name, value in vars(self._environment.task).items()
                if isinstance(value, bool | int | float | np.generic | np.ndarray)
            },
            "model": {
                name: array.copy()
                for name, array in self._arrays().items()
                if not np.array_equal(array, self._initial[name])
            },
        }

    def episode(self) -> dict[str, NDArray[Any]]:
        """Return the state of the running episode as arrays, without generator and step count.

        It includes the model arrays that the task has changed since it was created; every episode
        of a task changes the same ones.
        """
        state = self.get()
        return {
            "physics": state["physics"],
            **{f"task/{name}": value for name, value in state["task"].items()},
            **{f"model/{name}": value for name, value in state["model"].items()},
        }

    def begin_at(self, episode: Mapping[str, NDArray[Any]]) -> None:
        """Start a new episode at a state from ``episode``; the generator continues."""
        parts: dict[str, dict[str, Any]] = {"task": {}, "model": {}}
        for name, value in episode.items():
            kind, _, own = name.partition("/")
            if own:
                parts[kind][own] = value
        self.set(self.get() | parts | {"physics": episode["physics"], "steps": 0, "ended": False})

    def set(self, state: Mapping[str, Any]) -> None:
        """Restore a state from ``get``."""
        task, model = self._environment.task, state["model"]
        for name, array in self._arrays().items():
            array[...] = model.get(name, self._initial[name])
        for name, value in state["task"].items():
            setattr(task, name, np.asarray(value)[()])
        task.random.set_state(tuple(state["random"].values()))
        spec = mujoco.mjtState.mjSTATE_INTEGRATION.value
        mujoco.mj_setState(self._model, self._data, np.asarray(state["physics"]), spec)
        # dm_control keeps quantities derived from positions and velocities current between steps.
        mujoco.mj_step1(self._model, self._data)
        self._environment._step_count = int(state["steps"])
        self._environment._reset_next_step = bool(state["ended"])
