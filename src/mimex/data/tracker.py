"""Windows for loops that go step by step, and for steps sampled from a replay ring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mimex.data.state import read_state
from mimex.types import Array, Window


class WindowTracker:
    """Keeps the newest steps of some environments and gives the window that ends at each.

    Args:
        num_envs: Environments side by side.
        length: Steps a window.
        feature_dim: Numbers a step.
        action_dim: Numbers an action, if windows shall have actions.
        device: Where the windows live.
    """

    def __init__(
        self,
        num_envs: int,
        length: int,
        feature_dim: int,
        action_dim: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        for name, value in (
            ("num_envs", num_envs),
            ("length", length),
            ("feature_dim", feature_dim),
            ("action_dim", 1 if action_dim is None else action_dim),
        ):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        self.num_envs, self.length, self.feature_dim = num_envs, length, feature_dim
        try:
            self._features = torch.zeros(num_envs, length, feature_dim, device=device)
            self._valid = torch.zeros(num_envs, length, dtype=torch.bool, device=device)
            self._actions = (
                None
                if action_dim is None
                else torch.zeros(num_envs, length, action_dim, device=device)
            )
        except RuntimeError as error:
            raise ValueError(
                f"num_envs={num_envs}, length={length}, feature_dim={feature_dim}, "
                f"action_dim={action_dim} do not fit into memory: {error}"
            ) from error

    def push(self, features: Array, starts: Array, actions: Array | None = None) -> Window:
        """Takes in the newest observation of each environment and gives the windows that end there.

        Args:
            features: ``(N, D)``.
            starts: ``(N,)`` bool: the observation is the first of its episode; what was before is
                forgotten.
            actions: ``(N, A)``: the action that led to each observation; ignored at a start.
        """
        window = self.peek(features, actions, starts)
        self._features, self._valid, self._actions = (
            window.features.clone(),  # the caller's window must not change with ours
            window.valid.clone(),
            None if window.actions is None else window.actions.clone(),
        )
        return window

    def peek(
        self, features: Array, actions: Array | None = None, starts: Array | None = None
    ) -> Window:
        """The windows as if these observations were pushed; nothing is kept.

        For final observations, which a SAME_STEP environment gives beside the next episode's first.
        """
        newest = self._row("features", features, self.feature_dim)
        old = self._valid
        if starts is not None:
            starts = torch.as_tensor(starts, device=old.device)
            if starts.dtype != torch.bool or starts.shape != (self.num_envs,):
                raise ValueError(
                    f"starts is {starts.dtype} of shape {tuple(starts.shape)}; expected bool of "
                    f"shape ({self.num_envs},)."
                )
            old = old & ~starts.unsqueeze(1)
        valid = torch.cat([old[:, 1:], torch.ones_like(old[:, :1])], dim=1)
        kept = self._features[:, 1:] * valid[:, :-1, None]  # zeros before the episode's start
        window_actions = None
        if self._actions is not None:
            if actions is None:
                raise ValueError("this tracker has action_dim: push(features, starts, actions).")
            led = self._row("actions", actions, self._actions.shape[2])
            led = led if starts is None else led * ~starts.unsqueeze(1)
            past = self._actions[:, 1:] * valid[:, :-1, None]
            window_actions = torch.cat([past, led.unsqueeze(1)], dim=1)
        return Window(torch.cat([kept, newest.unsqueeze(1)], dim=1), valid, window_actions)

    def _row(self, name: str, values: Array, width: int) -> Tensor:
        given = torch.as_tensor(values)
        if given.is_complex():
            raise ValueError(f"{name} has complex numbers; expected real ones.")
        row = given.to(self._valid.device, torch.float32)
        if row.shape != (self.num_envs, width):
            raise ValueError(
                f"{name} has shape {tuple(row.shape)}; expected ({self.num_envs}, {width}): one "
                "row an environment."
            )
        return row

    def state_dict(self) -> dict[str, Any]:
        """The history."""
        state = {"features": self._features, "valid": self._valid}
        if self._actions is not None:
            state["actions"] = self._actions
        return {name: value.clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        loaded = {
            name: read_state(name, state.get(name), value.shape, value.dtype)
            for name, value in self.state_dict().items()
        }
        self._features, self._valid = loaded["features"], loaded["valid"]
        self._actions = loaded.get("actions")


def replay_rows(
    steps: Tensor, ages: Tensor, length: int, *, capacity: int, newest: int, size: int
) -> tuple[Tensor, Tensor]:
    """Where the windows of sampled steps of one environment's replay ring lie.

    Args:
        steps: ``(B,)`` slots of the observations at which the windows end.
        ages: ``(B,)``: how many observations of the same episode were before each.
        length: Steps a window.
        capacity: Slots of the ring.
        newest: The slot written last.
        size: Slots that hold data.

    Returns:
        Slots ``(B, L)``, oldest first, and which of them belong to the window ``(B, L)``; the
        others are before the episode's start or already overwritten.
    """
    back = torch.arange(length - 1, -1, -1, device=steps.device)
    written_since = (newest - steps) % capacity  # 0 for the newest
    older = size - 1 - written_since  # observations still there before each
    valid = back <= torch.minimum(ages, older).unsqueeze(1)
    return (steps.unsqueeze(1) - back) % capacity, valid
