"""Windows for loops that go step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from mimex.data.checks import read_state, require_positive
from mimex.data.windows import sum_actions
from mimex.types import Array, Window


class _History(NamedTuple):
    """The newest K = L * stride steps of each environment, oldest first."""

    features: Tensor  # (N, K, D)
    valid: Tensor  # (N, K) bool
    actions: Tensor | None  # (N, K, A): the previous action of each observation


class WindowTracker:
    """Stores the newest steps of parallel environments and returns the windows that end there.

    Args:
        num_envs: Number of parallel environments.
        length: Window length.
        feature_dim: Features per step.
        action_dim: Action dimensions, or number of discrete actions; None for windows without
            actions.
        device: PyTorch device of the windows.
        stride: Environment steps between consecutive steps of a window; the actions in between are
            summed.
    """

    def __init__(
        self,
        num_envs: int,
        length: int,
        feature_dim: int,
        action_dim: int | None = None,
        device: torch.device | str = "cpu",
        stride: int = 1,
    ) -> None:
        require_positive(num_envs=num_envs, length=length, feature_dim=feature_dim)
        require_positive(action_dim=action_dim, stride=stride)
        self.num_envs, self.length, self.feature_dim = num_envs, length, feature_dim
        self.stride, grid = stride, (num_envs, length * stride)
        self._history = _History(
            torch.zeros(*grid, feature_dim, device=device),
            torch.zeros(grid, dtype=torch.bool, device=device),
            None if action_dim is None else torch.zeros(*grid, action_dim, device=device),
        )

    def push(
        self,
        features: Array,
        starts: Array,
        actions: Array | None = None,
        which: Tensor | None = None,
    ) -> Window:
        """Adds the newest observation of each environment and returns the windows that end there.

        Args:
            features: ``(N, D)``, or ``(N,)`` integers for discrete observations, which become
                one-hot.
            starts: ``(N,)`` bool: the observation is the first of its episode.
            actions: ``(N, A)``, or ``(N,)`` integers: the previous action; ignored at a start.
            which: ``(N,)`` bool: the environments with a new observation; all if None.
        """
        old, new = self._history, self._after(features, actions, starts)
        if which is not None:
            actions = new.actions
            if old.actions is not None and actions is not None:
                actions = torch.where(which[:, None, None], actions, old.actions)
            new = _History(
                torch.where(which[:, None, None], new.features, old.features),
                torch.where(which[:, None], new.valid, old.valid),
                actions,
            )
        self._history = new
        return self.window()

    @property
    def starting(self) -> Tensor:
        """``(N,)`` bool: the newest observation is the first of its episode.

        Always True for windows of length 1 without stride, which have no step before the newest.
        """
        return ~self._history.valid[:, -2:-1].any(1)

    def window(self) -> Window:
        """The windows that end at the newest observations."""
        return self._windows(self._history)

    def peek(
        self, features: Array, actions: Array | None = None, starts: Array | None = None
    ) -> Window:
        """The windows as if these observations were pushed; stores nothing.

        For final observations, which a SAME_STEP environment returns in ``info``.
        """
        return self._windows(self._after(features, actions, starts))

    def _windows(self, history: _History) -> Window:
        grid = (self.num_envs, self.length, self.stride)
        valid, actions = history.valid.view(grid), None
        if history.actions is not None:
            actions = sum_actions(history.actions.view(*grid, -1), valid)
        # Copies: the caller's windows must not change with the history.
        every = slice(self.stride - 1, None, self.stride)
        return Window(history.features[:, every].clone(), history.valid[:, every].clone(), actions)

    def _after(self, features: Array, actions: Array | None, starts: Array | None) -> _History:
        """The history with these steps added."""
        old = self._history
        newest = self._row("features", features, self.feature_dim)
        starting = torch.zeros_like(old.valid[:, 0])
        if starts is not None:
            starting = torch.as_tensor(starts, device=old.valid.device)
        if starting.dtype != torch.bool or starting.shape != (self.num_envs,):
            raise ValueError(
                f"starts is {starting.dtype} of shape {tuple(starting.shape)}; expected bool of "
                f"shape ({self.num_envs},)."
            )
        continues = ~starting.unsqueeze(1)
        past = old.valid[:, 1:] & continues
        prev_actions = None
        if old.actions is not None:
            if actions is None:
                raise ValueError("this tracker has action_dim: push(features, starts, actions).")
            action = self._row("actions", actions, old.actions.shape[2]) * continues
            prev_actions = torch.cat([old.actions[:, 1:] * past[..., None], action[:, None]], dim=1)
        return _History(  # zeros before the start of the episode
            torch.cat([old.features[:, 1:] * past[..., None], newest.unsqueeze(1)], dim=1),
            torch.cat([past, torch.ones_like(continues)], dim=1),
            prev_actions,
        )

    def _row(self, name: str, values: Array, width: int) -> Tensor:
        """Checked values ``(N, width)``, one-hot for integers ``(N,)``."""
        row = torch.as_tensor(values, device=self._history.valid.device)
        if row.is_complex():
            raise ValueError(f"{name} has complex numbers; expected real ones.")
        if row.shape == (self.num_envs,) and not row.is_floating_point():
            if int(row.min()) < 0 or int(row.max()) >= width:
                raise ValueError(
                    f"{name} has codes from {int(row.min())} to {int(row.max())}; expected 0 to "
                    f"{width - 1}, because this tracker has {width} {name}."
                )
            row = one_hot(row.long(), width)
        row = row.float()
        if row.shape != (self.num_envs, width):
            raise ValueError(
                f"{name} has shape {tuple(row.shape)}; expected ({self.num_envs}, {width}), or "
                f"({self.num_envs},) integers for discrete ones."
            )
        return row

    def state_dict(self) -> dict[str, Any]:
        """The stored steps."""
        arrays = self._history._asdict()
        return {name: array.clone() for name, array in arrays.items() if array is not None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``; if it does not fit, ValueError, and nothing changes."""
        loaded = {
            name: read_state(name, state.get(name), value.shape, value.dtype)
            for name, value in self.state_dict().items()
        }
        self._history = _History(loaded["features"], loaded["valid"], loaded.get("actions"))
