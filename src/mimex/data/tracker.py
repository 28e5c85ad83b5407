"""Windows for loops that go step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from mimex.data.checks import copied, fitting_into_memory, read_state, require_positive
from mimex.data.trail import sum_between
from mimex.types import Array, Window


class _Kept(NamedTuple):
    """The trail of each environment's newest observation: L * stride steps, oldest first."""

    features: Tensor  # (N, K, D)
    valid: Tensor  # (N, K) bool
    actions: Tensor | None  # (N, K, A): that led to them


class WindowTracker:
    """Keeps the newest steps of some environments and gives the window that ends at each.

    Args:
        num_envs: Number of parallel environments.
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
        sizes = {"num_envs": num_envs, "length": length, "feature_dim": feature_dim}
        require_positive(**sizes, stride=stride, action_dim=1 if action_dim is None else action_dim)
        self.num_envs, self.length, self.feature_dim = num_envs, length, feature_dim
        self.stride, grid = stride, (num_envs, length * stride)
        with fitting_into_memory(**sizes, action_dim=action_dim, stride=stride):
            self._kept = _Kept(
                torch.zeros(*grid, feature_dim, device=device),
                torch.zeros(grid, dtype=torch.bool, device=device),
                None if action_dim is None else torch.zeros(*grid, action_dim, device=device),
            )

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
        self._kept = self._after(features, actions, starts)
        return self.window()

    @property
    def starting(self) -> Tensor:
        """``(N,)`` bool: the newest observation is the first of its episode.

        It cannot be told where windows are of one step alone: all are then.
        """
        return ~self._kept.valid[:, -2:-1].any(1)

    def window(self) -> Window:
        """The windows that end at the newest observations."""
        return self._view(self._kept)

    def peek(
        self, features: Array, actions: Array | None = None, starts: Array | None = None
    ) -> Window:
        """The windows as if these observations were pushed; nothing is kept.

        For final observations, which a SAME_STEP environment gives beside the next episode's first.
        """
        return self._view(self._after(features, actions, starts))

    def _view(self, kept: _Kept) -> Window:
        """Windows of every ``stride``-th step back from the newest, with sums of actions."""
        grid = (self.num_envs, self.length, self.stride)
        valid, actions = kept.valid.view(grid), None
        if kept.actions is not None:
            actions = sum_between(kept.actions.view(*grid, -1), valid)
        # Copies: the caller's windows must not change with ours.
        every = slice(self.stride - 1, None, self.stride)
        return Window(kept.features[:, every].clone(), kept.valid[:, every].clone(), actions)

    def _after(self, features: Array, actions: Array | None, starts: Array | None) -> _Kept:
        """All steps kept, once these are the newest."""
        old = self._kept
        newest = self._row("features", features, self.feature_dim)
        starting = torch.zeros_like(old.valid[:, 0])
        if starts is not None:
            starting = torch.as_tensor(starts, device=old.valid.device)
        if starting.dtype != torch.bool or starting.shape != (self.num_envs,):
            raise ValueError(
                f"starts is {starting.dtype} of shape {tuple(starting.shape)}; expected bool of "
                f"shape ({self.num_envs},)."
            )
        goes_on = ~starting.unsqueeze(1)
        past = old.valid[:, 1:] & goes_on
        led_to = None
        if old.actions is not None:
            if actions is None:
                raise ValueError("this tracker has action_dim: push(features, starts, actions).")
            led = self._row("actions", actions, old.actions.shape[2]) * goes_on
            led_to = torch.cat([old.actions[:, 1:] * past[..., None], led.unsqueeze(1)], dim=1)
        return _Kept(  # zeros before the episode's start
            torch.cat([old.features[:, 1:] * past[..., None], newest.unsqueeze(1)], dim=1),
            torch.cat([past, torch.ones_like(goes_on)], dim=1),
            led_to,
        )

    def _row(self, name: str, values: Array, width: int) -> Tensor:
        row = torch.as_tensor(values, device=self._kept.valid.device)
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
        return copied(**self._kept._asdict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        loaded = {
            name: read_state(name, state.get(name), value.shape, value.dtype)
            for name, value in self.state_dict().items()
        }
        self._kept = _Kept(loaded["features"], loaded["valid"], loaded.get("actions"))
