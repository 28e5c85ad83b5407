"""Checked inputs of a bonus: features and actions of windows as tensors."""

from __future__ import annotations

import threading
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


class Lock:
    """A reentrant lock; a copy of it, or one that is pickled, is a new lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


def isolated(method: Method[Arguments, Result]) -> Method[Arguments, Result]:
    """Decorator: runs a method of a bonus in one thread at a time, without autocast.

    A bonus cannot learn in inference mode, and autocast rounds away its small errors. Two threads
    that train the same networks crash PyTorch.
    """

    @wraps(method)
    def run(self: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        full_precision = torch.autocast(self.device.type, enabled=False)
        with self.lock, torch.inference_mode(False), torch.no_grad(), full_precision:
            return method(self, *args, **kwargs)

    return run


def outside_inference(window: Window) -> Window:
    """The window, copied if it was made in inference mode: autograd rejects such tensors."""
    parts = (window.features, window.valid, window.actions)
    inference = any(part is not None and part.is_inference() for part in parts)
    return window.clone() if inference else window


def read_features(
    window: Window,
    length: int,
    feature_dim: int | None,
    encoder: Encoder | None,
    device: torch.device,
) -> Tensor:
    """The features ``(B, L, D)`` of a window: encoded, or one-hot if they are integers."""
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


def read_actions(window: Window, action_dim: int | None, device: torch.device) -> Tensor:
    """The actions ``(B, L, A)`` of a window, one-hot if they are integers."""
    actions = window.actions
    if actions is None:
        raise ValueError(
            "this bonus uses actions, but the window has none: Window(features, valid, actions), "
            "where actions[:, k] led to features[:, k]."
        )
    actions = actions.to(device)
    if actions.ndim == 2 and not actions.is_floating_point():
        return _one_hot("actions", actions, action_dim, "action_dim")
    if actions.ndim != 3 or (action_dim is not None and actions.shape[2] != action_dim):
        raise ValueError(
            f"actions has shape {tuple(actions.shape)} and type {actions.dtype}; expected "
            f"(B, L, {action_dim or 'A'}) floats, or (B, L) integers below action_dim."
        )
    return check_finite(actions.float(), "actions", window.valid.to(device))


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


def check_one_hot(rows: Tensor) -> None:
    """Raises ValueError unless features ``(n, D)`` are one-hot codes with equally many ones."""
    ones = rows.sum(1)
    if not bool(((rows == 0) | (rows == 1)).all()) or not bool((ones == ones[:1]).all()):
        raise ValueError(
            "discrete_obs=True, but features are not one-hot codes (zeros and ones, with the same "
            "number of ones in every step): make the bonus with discrete_obs=False."
        )


def check_one_hot_actions(actions: Tensor) -> None:
    """Raises ValueError unless all actions ``(n, A)`` are one-hot."""
    wrong = ((actions != 0) & (actions != 1)).any(1) | (actions.sum(1) != 1)
    if bool(wrong.any()):
        raise ValueError(
            f"discrete=True, but action {actions[wrong][0].tolist()} is not a one-hot code of one "
            f"of action_dim={actions.shape[1]} actions: make the bonus with discrete=False for "
            "continuous actions, for MultiDiscrete ones, and for sums of actions (stride > 1)."
        )


def check_finite(values: Tensor, name: str, valid: Tensor | None = None) -> Tensor:
    """Raises ValueError for NaN and infinity, except in padding, where they become 0."""
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


def check_fraction(train_fraction: float) -> None:
    """Raises ValueError unless the fraction is in (0, 1]."""
    if not 0 < train_fraction <= 1:
        raise ValueError(f"train_fraction={train_fraction} is outside (0, 1].")
