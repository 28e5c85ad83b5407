"""From a window to the tensors that a network takes: checks, encoder, one-hot encoding."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from mimex.types import Window

Encoder = Callable[[Tensor], Tensor]
"""Maps raw observations ``(B, ...)`` to features ``(B, D)``; called without gradients."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Method = Callable[Concatenate[Any, Arguments], Result]


def read_features(
    window: Window,
    length: int,
    feature_dim: int | None,
    encoder: Encoder | None,
    device: torch.device,
) -> Tensor:
    """The checked features ``(B, L, D)`` of a window, encoded if there is an encoder."""
    raw = window.features.to(device)
    if len(raw) == 0:
        raise ValueError("the window is empty (0 windows): there is nothing to score.")
    if raw.shape[1] != length:
        raise ValueError(
            f"features has shape {tuple(raw.shape)}: windows of length {raw.shape[1]}; this bonus "
            f"was made for length={length}."
        )
    if encoder is not None:
        with torch.no_grad():
            features = encoder(raw.flatten(0, 1)).detach()
        features = features.reshape(*raw.shape[:2], *features.shape[1:])
    elif raw.ndim == 2 and not raw.is_floating_point():
        features = _one_hot("features", raw, feature_dim, "feature_dim")
    else:
        features = raw if raw.dtype == torch.float32 else raw.float()
    if features.ndim != 3 or (feature_dim is not None and features.shape[2] != feature_dim):
        raise ValueError(
            f"features has shape {tuple(features.shape)}; expected (B, {length}, "
            f"{feature_dim or 'D'}): windows of vectors. Images need encoder=..., a function from "
            "images (B, C, H, W) to features (B, D)."
        )
    return check_finite(features, "features", window.valid.to(device))


def read_actions(window: Window, action_dim: int, device: torch.device) -> Tensor:
    """The checked actions ``(B, L, A)`` of a window; one-hot if they are discrete."""
    actions = window.actions
    if actions is None:
        raise ValueError(
            f"this bonus uses actions (action_dim={action_dim}), but the window has none: "
            "Window(features, valid, actions), where actions[:, k] led to features[:, k]."
        )
    actions = actions.to(device)
    if actions.ndim == 2 and not actions.is_floating_point():
        return _one_hot("actions", actions, action_dim, "action_dim")
    if actions.ndim != 3 or actions.shape[2] != action_dim:
        raise ValueError(
            f"actions has shape {tuple(actions.shape)} and type {actions.dtype}; expected "
            f"(B, L, {action_dim}) floats, or (B, L) integers below action_dim={action_dim}."
        )
    return check_finite(actions.float(), "actions", window.valid.to(device))


def find_action_dim(window: Window, kind: str) -> int:
    """The action dimensions of a window, for a bonus of this kind that was not given them."""
    if window.actions is None:
        raise ValueError(
            f"{kind} uses actions, but the window has none: Window(features, valid, actions), "
            "where actions[:, k] led to features[:, k]."
        )
    if window.actions.ndim != 3:
        raise ValueError(
            "actions are discrete, and a window does not show how many there are: give action_dim."
        )
    return int(window.actions.shape[2])


def check_one_hot(rows: Tensor) -> None:
    """Raises ValueError unless all rows ``(n, D)`` are one-hot codes of one or several values."""
    ones = rows.sum(1)
    if not bool(((rows == 0) | (rows == 1)).all()) or not bool((ones == ones[:1]).all()):
        raise ValueError(
            "discrete_obs=True, but features are not one-hot codes (zeros and ones, with the same "
            "number of ones in every step): make the bonus with discrete_obs=False."
        )


def check_one_hot_actions(actions: Tensor) -> None:
    """Raises ValueError unless all actions ``(n, A)`` are one-hot."""
    ones = actions.sum(1)
    if not bool(((actions == 0) | (actions == 1)).all()) or not bool((ones == 1).all()):
        row = int(((actions != 0) & (actions != 1)).any(1).logical_or(ones != 1).nonzero()[0])
        raise ValueError(
            f"discrete=True, but action {actions[row].tolist()} is not a one-hot code of one of "
            f"action_dim={actions.shape[1]} actions: make the bonus with discrete=False for "
            "continuous actions, for MultiDiscrete ones, and for sums of actions (stride > 1)."
        )


def check_finite(values: Tensor, name: str, valid: Tensor | None = None) -> Tensor:
    """Raises ValueError for NaN and infinity, naming the first; in padding they become 0."""
    # A single pass without temporaries; if the sum overflows, the check below decides.
    if bool(values.sum().isfinite()):
        return values
    bad = ~values.isfinite()
    if valid is not None:
        bad &= valid.unsqueeze(2)
    if bool(bad.any()):
        index = tuple(bad.nonzero()[0].tolist())
        at = ", ".join(
            f"{what} {i}" for what, i in zip(("window", "step", "feature"), index, strict=False)
        )
        raise ValueError(
            f"{name} has {int(bad.sum())} NaN or infinite values; the first is "
            f"{float(values[index])} at {at}. Nothing was learned from this batch."
        )
    return values if valid is None else values.masked_fill(~valid.unsqueeze(2), 0.0)


def check_widths(**widths: int | tuple[int, ...] | None) -> None:
    """Raises ValueError for sizes below 1, by their names; None is not checked."""
    for name, value in widths.items():
        sizes = value if isinstance(value, tuple) else (value,)
        if not all(size is None or size >= 1 for size in sizes):
            raise ValueError(f"{name}={value} must be at least 1.")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises ValueError unless a setting has one of its possible values."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown: use one of {', '.join(choices)}.")


def check_fraction(train_fraction: float) -> None:
    """Raises ValueError unless the fraction is in (0, 1]."""
    if not 0 < train_fraction <= 1:
        raise ValueError(f"train_fraction={train_fraction} is outside (0, 1].")


def _one_hot(name: str, codes: Tensor, size: int | None, size_name: str) -> Tensor:
    if size is None:
        raise ValueError(
            f"{name} are discrete, and a window does not show how many there are: give {size_name}."
        )
    if codes.min() < 0 or codes.max() >= size:
        raise ValueError(
            f"{name} has codes from {int(codes.min())} to {int(codes.max())}; expected 0 to "
            f"{size_name} - 1 = {size - 1}."
        )
    return nn.functional.one_hot(codes.long(), size).float()


def in_own_mode(method: Method[Arguments, Result]) -> Method[Arguments, Result]:
    """Decorator: run a method of a bonus under its lock, outside inference mode and autocast.

    In inference mode nothing can be learned, and autocast rounds away the small errors of a trained
    bonus.
    """

    @wraps(method)
    def alone(self: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        own_precision = torch.autocast(self.device.type, enabled=False)
        with self.lock, torch.inference_mode(False), torch.no_grad(), own_precision:
            return method(self, *args, **kwargs)

    return alone


def outside_inference(window: Window) -> Window:
    """The window, copied if it was made in inference mode: autograd rejects such tensors."""
    parts = (window.features, window.valid, window.actions)
    made_there = any(part is not None and part.is_inference() for part in parts)
    return window.clone() if made_there else window


def unchanged_if_refused(
    *parts: str,
) -> Callable[[Method[Arguments, Result]], Method[Arguments, Result]]:
    """Decorator: if the method raises, restore the attributes of its object and of these parts.

    Attributes are restored by reference, lists and dicts by content; tensors that the method
    changes in place are not restored.
    """

    def decorate(method: Method[Arguments, Result]) -> Method[Arguments, Result]:
        @wraps(method)
        def guarded(self: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            held = [
                (vars(one), {name: _copied(value) for name, value in vars(one).items()})
                for one in (self, *(getattr(self, part) for part in parts))
                if hasattr(one, "__dict__")
            ]
            try:
                return method(self, *args, **kwargs)
            except BaseException:
                for now, before in held:
                    now.clear()
                    now.update(before)
                raise

        return guarded

    return decorate


def _copied(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict) else value
