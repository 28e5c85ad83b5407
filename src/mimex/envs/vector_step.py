"""What a vector environment's step takes and tells.

Actions are checked, info is arrays or Gymnasium's layout of them, and a simulation that lost its
footing leaves a record.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.envs.arrays import namespace, to_numpy

Array = NDArray[Any]
Info = dict[str, Any]

Observation = Array | dict[str, Array]
"""Of N environments: vectors, or pictures and vectors by name."""


def checked_actions(actions: Any, shape: tuple[int, int], steps: Array) -> Array:
    """Return the actions (N, A), or refuse them with the environment's index.

    Args:
        actions: What the caller passed to `step`, as the engine's numbers.
        shape: Number of environments and of joints.
        steps: Steps that each environment's episode has behind it, (N,).
    """
    if actions.shape != shape:
        raise ValueError(
            f"actions has shape {tuple(actions.shape)}, but {shape[0]} environment(s) with "
            f"{shape[1]} joints need {shape}"
        )
    finite = namespace(actions).isfinite(actions)
    if not finite.all():
        env, joint = np.argwhere(~to_numpy(finite))[0]
        raise ValueError(
            f"actions[{env}, {joint}] is {actions[env, joint]} (environment {env}, episode step "
            f"{steps[env]}), but every number must be finite; look for a diverged policy"
        )
    checked: Array = actions
    return checked


def with_ended(info: Info, observation: Observation, rows: NDArray[np.integer[Any]]) -> Info:
    """Return the info, also as "final_info", and as "final_obs" what ended episodes last saw.

    Args:
        info: Arrays (N, ...) by name: of the step, whether it ended an episode or not.
        observation: What the step led to, (N, ...).
        rows: The environments whose episode ended; of theirs "final_obs" is a copy, (rows, ...).
    """
    return info | {"final_info": info, "final_obs": _some(observation, rows)}


def laid_out(info: Info, ended: NDArray[np.bool_]) -> Info:
    """Return NumPy's arrays in Gymnasium's layout: each with a mask of whose numbers it holds.

    Those of ended episodes move to "final_info", and "final_obs" becomes an array (N,) of objects.

    Args:
        info: Arrays (N, ...) by name; if new episodes have begun, as `with_ended` returns it.
        ended: (N,).
    """
    if "final_info" not in info:
        return with_masks(info, np.ones_like(ended))
    running: Info = {}
    final: Info = {}
    for key, values in info["final_info"].items():
        running[key], final[key] = values.copy(), np.zeros_like(values)
        running[key][ended] = 0
        final[key][ended] = values[ended]
    last = np.full(len(ended), None, object)
    for number, row in enumerate(np.flatnonzero(ended)):
        last[row] = _some(info["final_obs"], number)
    return with_masks(running, ~ended) | {
        "final_info": with_masks(final, ended),
        "_final_info": ended,
        "final_obs": last,
        "_final_obs": ended,
    }


def with_masks(info: Info, mask: NDArray[np.bool_]) -> Info:
    """Return the info with a mask beside each array, under its name and an underscore."""
    return info | {f"_{key}": mask for key in info}


def _some(observation: Observation, rows: Any) -> Any:
    if isinstance(observation, dict):
        return {key: part[rows] for key, part in observation.items()}
    return observation[rows]


def write_rows(observation: Observation, rows: NDArray[np.int32], new: Any) -> None:
    """Write the observations `new` (rows, ...) over those rows of a batch (N, ...)."""
    if isinstance(observation, dict):
        for key, part in observation.items():
            part[rows] = new[key]
    else:
        observation[rows] = new


class UnstableRecorder:
    """Saves the states that simulations failed from, one .npz file each.

    A file holds the state before the step ("state", what `Engine.restore` takes as one row), the
    joint targets of the step ("targets") and a note as JSON ("note").

    Args:
        folder: Where to write, created when needed; None writes nothing.
        task: The task's name, which begins each file's name.
    """

    def __init__(self, folder: str | None, task: str) -> None:
        self.folder = None if folder is None else Path(folder)
        self.task = task

    def save(self, env: int, state: Array, targets: Array, note: dict[str, Any]) -> Path | None:
        """Write one failure and return the file, which never replaces an older one."""
        if self.folder is None:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"task": self.task, "env": env, **note})
        number = 0
        while True:
            path = self.folder / f"{self.task}-{number:05d}.npz"
            try:
                with path.open("xb") as file:
                    np.savez(file, state=state, targets=targets, note=text)
            except FileExistsError:
                number += 1
            else:
                return path
