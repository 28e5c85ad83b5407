"""Saving and loading: optimizers by parameter name, and refusing what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def optimizer_state(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The moments of each parameter by its name; empty before the first step."""
    return {
        name: {key: value.clone() for key, value in optimizer.state[parameter].items()}
        for name, parameter in parameters.items()
        if parameter in optimizer.state
    }


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, Tensor],
    state: Mapping[str, Mapping[str, Tensor]],
) -> None:
    """Puts the moments of ``optimizer_state`` back."""
    optimizer.state.clear()
    for name, moments in state.items():
        parameter = parameters[name]
        optimizer.state[parameter] = {
            key: value.clone() if key == "step" else value.to(parameter.device, copy=True)
            for key, value in moments.items()
        }


def require_same(expected: Mapping[str, Tensor], found: Mapping[str, Any], what: str) -> None:
    """Refuses a state whose names or shapes differ from ours, naming the first differences.

    Numbers that are not finite are refused, too.
    """
    differences = [f"{name} is missing" for name in expected if name not in found]
    differences += [f"{name} is unknown" for name in found if name not in expected]
    for name, value in expected.items():
        other = found.get(name, value)
        if not isinstance(other, Tensor):
            differences.append(f"{name} is a {type(other).__name__}, expected an array")
        elif value.shape != other.shape:
            differences.append(
                f"{name} has shape {tuple(other.shape)}, expected {tuple(value.shape)}"
            )
        elif not bool(other.isfinite().all()):
            differences.append(f"{name} has numbers that are not finite")
    if differences:
        more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
        raise ValueError(f"the state does not fit {what}: {'; '.join(differences[:3])}{more}.")
