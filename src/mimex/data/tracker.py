"""Windows for loops that go step by step, and for steps sampled from a replay ring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

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
        stride: Steps of the episode from one step of a window to the next; the actions between
            them are summed.
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
        for name, value in (
            ("num_envs", num_envs),
            ("length", length),
            ("feature_dim", feature_dim),
            ("stride", stride),
            ("action_dim", 1 if action_dim is None else action_dim),
        ):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        self.num_envs, self.length, self.feature_dim = num_envs, length, feature_dim
        self.stride, kept = stride, length * stride
        try:
            self._features = torch.zeros(num_envs, kept, feature_dim, device=device)
            self._valid = torch.zeros(num_envs, kept, dtype=torch.bool, device=device)
            self._actions = (
                None
                if action_dim is None
                else torch.zeros(num_envs, kept, action_dim, device=device)
            )
        except RuntimeError as error:
            raise ValueError(
                f"num_envs={num_envs}, length={length}, feature_dim={feature_dim}, "
                f"action_dim={action_dim}, stride={stride} do not fit into memory: {error}"
            ) from error

    def push(self, features: Array, starts: Array, actions: Array | None = None) -> Window:
        """Takes in the newest observation of each environment and gives the windows that end there.

        Args:
            features: ``(N, D)``, or ``(N,)`` integers: discrete observations, which become one-hot
                codes of ``feature_dim`` numbers.
            starts: ``(N,)`` bool: the observation is the first of its episode; what was before is
                forgotten.
            actions: ``(N, A)``, or ``(N,)`` integers: the action that led to each observation;
                ignored at a start.
        """
        self._features, self._valid, self._actions = self._after(features, actions, starts)
        return self.window()

    @property
    def starting(self) -> Tensor:
        """``(N,)`` bool: the newest observation is the first of its episode.

        It cannot be told where windows are of one step alone: all are then.
        """
        return ~self._valid[:, -2:-1].any(1)

    def window(self) -> Window:
        """The windows that end at the newest observations."""
        return self._view(self._features, self._valid, self._actions)

    def peek(
        self, features: Array, actions: Array | None = None, starts: Array | None = None
    ) -> Window:
        """The windows as if these observations were pushed; nothing is kept.

        For final observations, which a SAME_STEP environment gives beside the next episode's first.
        """
        return self._view(*self._after(features, actions, starts))

    def _view(self, features: Tensor, valid: Tensor, actions: Tensor | None) -> Window:
        """Windows of every ``stride``-th step back from the newest, with sums of actions."""
        every = slice(self.stride - 1, None, self.stride)
        if actions is not None:
            actions = actions.view(len(actions), self.length, self.stride, -1).sum(2)
        # Copies: the caller's windows must not change with ours.
        return Window(features[:, every].clone(), valid[:, every].clone(), actions)

    def _after(
        self, features: Array, actions: Array | None, starts: Array | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Features, validity and actions of all steps kept, once these are the newest."""
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
        return torch.cat([kept, newest.unsqueeze(1)], dim=1), valid, window_actions

    def _row(self, name: str, values: Array, width: int) -> Tensor:
        row = torch.as_tensor(values, device=self._valid.device)
        if row.is_complex():
            raise ValueError(f"{name} has complex numbers; expected real ones.")
        if row.shape == (self.num_envs,) and not row.is_floating_point():
            if int(row.min()) < 0 or int(row.max()) >= width:
                raise ValueError(
                    f"{name} has codes from {int(row.min())} to {int(row.max())}; expected 0 to "
                    f"{width - 1}, since the tracker has {width} {name.removesuffix('s')} numbers."
                )
            row = one_hot(row.long(), width)
        row = row.float()
        if row.shape != (self.num_envs, width):
            raise ValueError(
                f"{name} has shape {tuple(row.shape)}; expected ({self.num_envs}, {width}): one "
                "row an environment, or discrete ones as integers."
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
