"""What a vector environment tells beside its step: as arrays, and in Gymnasium's layout of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.envs.observation import Observation

Info = dict[str, Any]


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
