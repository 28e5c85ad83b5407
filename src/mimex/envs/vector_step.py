"""Parts of a vector environment's step: action checks, `info` and records of failed simulations."""

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
"""Observations of N environments: vectors, or images and vectors by name."""


def checked_actions(actions: Any, shape: tuple[int, int], steps: Array) -> Array:
    """Return the actions (N, A), or raise ValueError with the index of the environment.

    Args:
        actions: Actions as passed to `step`, in the engine's array type.
        shape: Number of environments and of joints.
        steps: Steps of each current episode, (N,).
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
            f"{steps[env]}), but actions must be finite; check whether the policy has diverged"
        )
    checked: Array = actions
    return checked


def with_ended(info: Info, observation: Observation, rows: NDArray[np.integer[Any]]) -> Info:
    """Add "final_info" (the info itself) and "final_obs" (last observations of ended episodes).

    Args:
        info: Arrays (N, ...) by name, of this step in all environments.
        observation: Observations before the reset, (N, ...).
        rows: Environments whose episode ended; "final_obs" is a copy of their rows, (rows, ...).
    """
    return info | {"final_info": info, "final_obs": _some(observation, rows)}


def laid_out(info: Info, ended: NDArray[np.bool_]) -> Info:
    """Return NumPy info in Gymnasium's layout, with a mask for each array.

    Values of ended episodes move to "final_info"; "final_obs" becomes an object array (N,).

    Args:
        info: Arrays (N, ...) by name; if episodes were reset, as returned by `with_ended`.
        ended: Whether the episode of each environment ended, (N,).
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
    for index, row in enumerate(np.flatnonzero(ended)):
        last[row] = _some(info["final_obs"], index)
    return with_masks(running, ~ended) | {
        "final_info": with_masks(final, ended),
        "_final_info": ended,
        "final_obs": last,
        "_final_obs": ended,
    }


def with_masks(info: Info, mask: NDArray[np.bool_]) -> Info:
    """Return the info with a mask for each array, under its name with a leading underscore."""
    return info | {f"_{key}": mask for key in info}


def _some(observation: Observation, rows: Any) -> Any:
    if isinstance(observation, dict):
        return {key: part[rows] for key, part in observation.items()}
    return observation[rows]


def write_rows(observation: Observation, rows: NDArray[np.int32], new: Any) -> None:
    """Overwrite some rows of a batch of observations (N, ...) with `new` (rows, ...)."""
    if isinstance(observation, dict):
        for key, part in observation.items():
            part[rows] = new[key]
    else:
        observation[rows] = new


class UnstableRecorder:
    """Saves the states of failed simulations, one .npz file each.

    A file has the state before the step ("state", one row for `Engine.restore`), the joint targets
    of the step ("targets") and a JSON note ("note").

    Args:
        folder: Output directory, created when needed; None disables saving.
        task: Task name, the prefix of each file name.
    """

    def __init__(self, folder: str | None, task: str) -> None:
        self.folder = None if folder is None else Path(folder)
        self.task = task

    def save(self, env: int, state: Array, targets: Array, note: dict[str, Any]) -> Path | None:
        """Save one failure and return the new file; existing files are never overwritten."""
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
