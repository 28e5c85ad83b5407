"""Gymnasium's layout of a vector environment's info: arrays, each with a mask of whose it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.envs.arrays import to_numpy
from mimex.envs.observation import Observation

Info = dict[str, Any]


def mask_of(rows: NDArray[np.int32], num_envs: int) -> NDArray[np.bool_]:
    """Return the mask (N,) that is true at the given rows."""
    mask = np.zeros(num_envs, bool)
    mask[rows] = True
    return mask


def with_masks(info: Info, mask: NDArray[np.bool_]) -> Info:
    """Return the info with a mask beside each array, under its name and an underscore."""
    return info | {f"_{key}": mask for key in info}


def split_ended(info: Info, observation: Observation, rows: NDArray[np.int32]) -> Info:
    """Return the info with that of environments whose episode ended moved to "final_info".

    Args:
        info: Arrays (N, ...) by name; rows of ended episodes are set to zero.
        observation: What the step led to, (N, ...); copied to "final_obs" where an episode ended.
        rows: The environments whose episode ended.
    """
    num_envs = len(next(iter(info.values())))
    ended = mask_of(rows, num_envs)
    running: Info = {}
    final: Info = {}
    for key, values in info.items():
        running[key], final[key] = values.copy(), np.zeros_like(values)
        running[key][rows] = 0
        final[key][rows] = values[rows]
    return with_masks(running, ~ended) | {
        "final_info": with_masks(final, ended),
        "_final_info": ended,
        "final_obs": final_observations(observation, rows, num_envs),
        "_final_obs": ended,
    }


def keep_ended(info: Info, observation: Observation, rows: NDArray[np.int32]) -> Info:
    """Return the info of tensors as it is, also under "final_info", and the last observations.

    Args:
        info: Tensors (N, ...) by name: of the step, whether it ended an episode or not.
        observation: What the step led to, (N, ...).
        rows: The environments whose episode ended; "final_obs" is a copy of theirs, (rows, ...).
    """
    if isinstance(observation, dict):
        final: Observation = {key: part[rows] for key, part in observation.items()}
    else:
        final = observation[rows]
    return info | {"final_info": info, "final_obs": final}


def final_observations(
    observation: Observation, rows: NDArray[np.int32], num_envs: int
) -> NDArray[np.object_]:
    """Return an array (N,) of objects: the observation where an episode ended, else None."""
    final = np.full(num_envs, None, object)
    for row in rows:
        if isinstance(observation, dict):
            final[row] = {key: part[row].copy() for key, part in observation.items()}
        else:
            final[row] = observation[row].copy()
    return final


def write_rows(observation: Observation, rows: NDArray[np.int32], new: Any) -> None:
    """Write the observations `new` (rows, ...) over those rows of a batch (N, ...)."""
    if isinstance(observation, dict):
        for key, part in observation.items():
            write_rows(part, rows, new[key])
    else:
        observation[rows] = to_numpy(new) if isinstance(observation, np.ndarray) else new
