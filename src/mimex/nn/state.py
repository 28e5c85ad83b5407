"""Saving and restoring of optimizers and random generators, with checks of what is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor


def optimizer_state(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The Adam moments of each parameter, by parameter name; empty before the first step."""
    return {
        name: {key: value.clone() for key, value in optimizer.state[parameter].items()}
        for name, parameter in parameters.items()
        if parameter in optimizer.state
    }


def check_optimizer(parameters: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Raises ValueError for Adam moments that do not belong to these parameters."""
    for name, moments in state.items():
        shape = parameters[name]
        expected = {"step": shape.new_zeros(()), "exp_avg": shape, "exp_avg_sq": shape}
        require_same(expected, moments, f"the optimizer of {name}")


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, Tensor],
    state: Mapping[str, Mapping[str, Tensor]],
) -> None:
    """Restores ``optimizer_state``, on the device of each parameter."""
    # Adam keeps its step counter on the CPU unless it is fused or capturable.
    groups = optimizer.param_groups
    on_device = any(group.get("fused") or group.get("capturable") for group in groups)
    optimizer.state.clear()
    for name, moments in state.items():
        parameter = parameters[name]
        optimizer.state[parameter] = {
            key: value.to("cpu" if key == "step" and not on_device else parameter.device, copy=True)
            for key, value in moments.items()
        }


def require_same(expected: Mapping[str, Tensor], found: Mapping[str, Any], what: str) -> None:
    """Raises ValueError for missing, unknown, misshapen or non-finite tensors; names three."""
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
            differences.append(f"{name} has values that are not finite")
    if differences:
        more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
        raise ValueError(f"the state does not fit {what}: {'; '.join(differences[:3])}{more}.")


def load_generator(generator: Generator, saved: Any) -> None:
    """Restores the state of a random generator.

    A CPU generator cannot continue from the state of a CUDA generator, nor the reverse: it is then
    reseeded from a hash of that state.
    """
    if not isinstance(saved, Tensor) or saved.dtype != torch.uint8 or saved.ndim != 1:
        found = f"shape {tuple(saved.shape)}" if isinstance(saved, Tensor) else repr(saved)
        raise ValueError(f"the state's generator has {found}; expected bytes: it is damaged.")
    saved = saved.cpu()
    if saved.shape == generator.get_state().shape:
        generator.set_state(saved)
    else:
        digest = hashlib.sha256(saved.numpy().tobytes()).digest()
        generator.manual_seed(int.from_bytes(digest[:4], "big"))
