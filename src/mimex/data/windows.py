"""Windows by index: every observation is stored once, and windows are rows of a table.

A window ends at one observation and reaches back over the observations before it in its episode:
``length`` of them, ``stride`` steps apart. It never reaches over the start of the episode; missing
steps are zeros that are marked as not valid. Rollouts (here), loops that go step by step
(``tracker.py``), our replay buffer (``replay.py``) and that of Stable-Baselines3 follow the same
rule; all but the tracker use ``window_indices``.

What a vector environment returns at the end of an episode depends on its autoreset mode:

- SAME_STEP: ``step`` returns the first observation of the next episode; the final observation is in
  ``info["final_obs"]``.
- NEXT_STEP: ``step`` returns the final observation; the step after it ignores its action and
  returns the first observation of the next episode. That step is not a transition.
- DISABLED: ``step`` returns the final observation, and the caller resets before the next step. In a
  record of what the policy acted on, the final observation is then separate as with SAME_STEP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from mimex.data.checks import read_state, require_choice, require_positive
from mimex.types import Array, Window

EndsAt = Literal["observation", "next"]
Autoreset = Literal["same_step", "next_step", "disabled"]

PADDING = 0
"""The row of steps before the start of an episode."""


def window_indices(
    newest: Tensor, previous: Callable[[Tensor], Tensor], length: int, stride: int = 1
) -> Tensor:
    """Rows of the observations of windows, oldest first.

    Args:
        newest: Rows ``(...)`` at which windows end; PADDING for an empty window.
        previous: Maps rows to the previous rows of their episodes; PADDING for the first row of an
            episode and for PADDING.
        length: Window length, L.
        stride: Environment steps between consecutive steps of a window, S.

    Returns:
        ``(..., L, S)``: the last of each S is the step of the window, the others are the rows
        between it and the step before.
    """
    rows = [newest]
    for _ in range(length * stride):
        rows.append(previous(rows[-1]))
    return torch.stack(rows[::-1], dim=-1)[..., 1:].reshape(*newest.shape, length, stride)


def sum_actions(actions: Tensor, valid: Tensor) -> Tensor:
    """Sums the actions between consecutive steps of windows.

    Args:
        actions: ``(..., L, S, A)``, or ``(..., L, S)`` integers: the previous action of each row of
            ``window_indices``.
        valid: ``(..., L, S)`` bool: False for actions that are not counted, such as of padding.
    """
    actions = actions * valid.view(*valid.shape, *[1] * (actions.ndim - valid.ndim))
    newest, *older = actions.unbind(valid.ndim - 1)[::-1]
    for action in older:  # not sum(): the same rounding for any memory layout
        newest = newest + action
    return newest


def ring_indices(
    newest: Tensor, oldest: Tensor, slots: int, length: int, stride: int = 1
) -> tuple[Tensor, Tensor]:
    """``window_indices`` of a ring buffer, in which the previous row is the previous slot.

    Args:
        newest: ``(B,)`` counts of the observations at which windows end; slots are counts modulo
            ``slots``.
        oldest: ``(B,)`` counts of the first observations of their episodes that are still in the
            ring.
        slots: Size of the ring, larger than the reach of a window.
        length: Window length, L.
        stride: Environment steps between consecutive steps of a window, S.

    Returns:
        Slots ``(B, L, S)``, with the oldest in place of missing ones, and which are valid
        ``(B, L, S)``.
    """
    first = oldest + slots  # positive, so that no count is PADDING
    rows = window_indices(
        newest + slots, lambda row: torch.where(row > first, row - 1, PADDING), length, stride
    )
    valid = rows != PADDING
    return torch.where(valid, rows, first[:, None, None]) % slots, valid


@dataclass(frozen=True, eq=False)
class WindowIndex:
    """Windows of a rollout as rows of a bank of features.

    Attributes:
        bank: ``(R, D)`` features, each once; row 0 is zeros, the padding.
        actions: ``(R, A)`` or ``(R,)``: the previous action of each row; or None.
        path: ``(M * N, L, S)`` rows of each step's window, from ``window_indices``.
        real: ``(M * N,)``: False for steps that are not transitions (reset steps of NEXT_STEP);
            their windows are empty.
        starts: ``(M * N,)``: the step is the first of its episode.
    """

    bank: Tensor
    actions: Tensor | None
    path: Tensor
    real: Tensor
    starts: Tensor

    def __len__(self) -> int:
        return len(self.path)

    @property
    def rows(self) -> Tensor:
        """``(M * N, L)`` rows of each window's steps, oldest first; 0 for padding."""
        return self.path[..., -1]

    def __getitem__(self, steps: Tensor | slice) -> Window:
        """The windows of some steps, where step ``t`` of environment ``n`` is ``t * N + n``."""
        path = self.path[steps]
        rows, valid = path[..., -1], path != PADDING
        actions = None if self.actions is None else sum_actions(self.actions[path], valid)
        return Window(self.bank[rows], valid[..., -1], actions)

    def greatest(self, scores: Tensor, count: int) -> Window:
        """The windows without padding that have the greatest scores ``(M, N)``."""
        full = (self.rows != PADDING).all(dim=1)
        ranked = scores.flatten().masked_fill(~full, -torch.inf)
        return self[ranked.topk(min(count, int(full.sum()))).indices]


class RolloutWindows:
    """Builds the windows of on-policy rollouts, which reach back into the rollouts before.

    Args:
        length: Window length.
        num_envs: Number of parallel environments.
        ends_at: Whether the window of step t ends at ``"observation"`` o_t, on which the policy
            acted (the paper), or at ``"next"`` o_t+1.
        autoreset: The vector environment's autoreset mode.
        stride: Environment steps between consecutive steps of a window; the actions in between are
            summed.
    """

    def __init__(
        self,
        length: int,
        num_envs: int,
        *,
        ends_at: EndsAt = "observation",
        autoreset: Autoreset = "same_step",
        stride: int = 1,
    ) -> None:
        require_positive(length=length, num_envs=num_envs, stride=stride)
        require_choice(EndsAt, ends_at=ends_at)
        require_choice(Autoreset, autoreset=autoreset)
        self.length, self.num_envs = length, num_envs
        self.ends_at, self.autoreset, self.stride = ends_at, autoreset, stride
        # The history: P = L * stride - 1 observations before the next rollout.
        self._valid = torch.zeros(num_envs, length * stride - 1, dtype=torch.bool)
        self._starting = torch.ones(num_envs, dtype=torch.bool)  # the next observation is a start
        self._resetting = torch.zeros(num_envs, dtype=torch.bool)  # the next step only resets
        self._features: Tensor | None = None  # (N, P, D)
        self._prev_actions: Tensor | None = None  # (N, P, A)
        self._action: Tensor | None = None  # (N, A): of the last step

    @property
    def reach(self) -> int:
        """Number of observations before a rollout that its windows may reach back to, P."""
        return self._valid.shape[1]

    def build(
        self,
        features: Array,
        ended: Array,
        *,
        last: Array | None = None,
        finals: Array | None = None,
        actions: Array | None = None,
        history: Array | None = None,
    ) -> WindowIndex:
        """Indexes the windows of one rollout of M steps, on the device of the features.

        Args:
            features: ``(M, N, D)``: of the observations on which the policy acted.
            ended: ``(M, N)`` bool: the step terminated or truncated its episode.
            last: ``(N, D)``: of the observation after the last step; for ``ends_at="next"``.
            finals: ``(F, D)``: of the final observations, one for each True of ``ended`` in
                row-major order; for ``ends_at="next"`` unless autoreset is NEXT_STEP, where
                final observations are among ``features``.
            actions: ``(M, N, A)``, or ``(M, N)`` integers.
            history: ``(N, reach, D)``: of the observations before the rollout, for an encoder that
                has changed; None for the features of earlier calls.
        """
        features = torch.as_tensor(features)
        device, width = features.device, features.shape[2:]
        ended = torch.as_tensor(ended, device=device)
        last, finals, actions, history = (
            None if values is None else torch.as_tensor(values, device=device)
            for values in (last, finals, actions, history)
        )
        self._check(features, ended, last, finals, actions, history)
        steps, envs, depth = len(ended), self.num_envs, self.reach
        if self.autoreset == "next_step":
            before_start = resets = torch.cat([self._resetting.to(device)[None], ended[:-1]])
        else:
            before_start, resets = ended, torch.zeros_like(ended)
        starts = torch.cat([self._starting.to(device)[None], before_start[:-1]])

        # The bank: padding, history, the rollout, and the observations after its steps.
        past = features.new_zeros(envs, depth, *width) if self._features is None else self._features
        past = past.to(device) if history is None else history
        parts = [features.new_zeros(1, *width), past.flatten(0, 1), features.flatten(0, 1)]
        if self.ends_at == "next":
            parts += [part for part in (last, finals) if part is not None]
        bank = torch.cat(parts)
        rows = torch.arange(len(bank), device=device)
        old = rows[1 : 1 + envs * depth].view(envs, depth)
        now = rows[1 + envs * depth :][: steps * envs].view(steps, envs)
        final = rows[1 + envs * (depth + steps + 1) :]

        # The previous row of each row in its episode.
        previous = torch.zeros_like(rows)
        if depth:
            valid = self._valid.to(device)
            previous[old[:, 1:]] = old[:, :-1] * valid[:, :-1]
            previous[now[0]] = old[:, -1] * (valid[:, -1] & ~starts[0])
        previous[now[1:]] = now[:-1] * ~starts[1:]
        ends = now
        if self.ends_at == "next":
            ends = now + envs  # the rows of ``last`` follow those of the rollout
            previous[ends[-1]] = now[-1]
            if self.autoreset != "next_step":
                previous[final] = now[ended]
                ends = ends.masked_scatter(ended, final)

        prev_actions = None if actions is None else self._actions_before(actions, starts, ended)
        path = window_indices(ends * ~resets, previous.__getitem__, self.length, self.stride)
        kept = window_indices(now[-1], previous.__getitem__, depth).squeeze(-1)  # (N, P)
        self._features, self._valid = bank[kept], kept != PADDING
        self._prev_actions = None if prev_actions is None else prev_actions[kept]
        self._action = None if actions is None else actions[-1].clone()
        self._resetting = ended[-1].clone()
        self._starting = before_start[-1].clone()
        path = path.flatten(0, 1)
        return WindowIndex(bank, prev_actions, path, ~resets.flatten(), starts.flatten())

    def _actions_before(self, actions: Tensor, starts: Tensor, ended: Tensor) -> Tensor:
        """The previous action of each row of the bank; zeros for padding and starts."""
        history, last, kind = self._prev_actions, self._action, actions.shape[2:]
        if history is None or last is None:
            history = actions.new_zeros(*self._valid.shape, *kind)
            last = actions.new_zeros(self.num_envs, *kind)
        previous = torch.cat([last.to(actions)[None], actions[:-1]])
        previous = previous * ~starts.view(*starts.shape, *[1] * len(kind))
        parts = [history.to(actions).flatten(0, 1), previous.flatten(0, 1)]
        after = [actions[-1], actions[ended]] if self.ends_at == "next" else []
        return torch.cat([actions.new_zeros(1, *kind), *parts, *after])

    def _check(
        self,
        features: Tensor,
        ended: Tensor,
        last: Tensor | None,
        finals: Tensor | None,
        actions: Tensor | None,
        history: Tensor | None,
    ) -> None:
        steps, width = len(features), tuple(features.shape[2:])
        grid = (steps, self.num_envs)
        if features.ndim < 3 or steps == 0 or features.shape[1] != self.num_envs:
            raise ValueError(
                f"features has shape {tuple(features.shape)}; expected (M, {self.num_envs}, D) "
                "with at least one step."
            )
        if ended.dtype != torch.bool or ended.shape != grid:
            raise ValueError(
                f"ended is {ended.dtype} of shape {tuple(ended.shape)}; expected bool of {grid}."
            )
        if actions is not None and actions.shape[:2] != grid:
            raise ValueError(f"actions has shape {tuple(actions.shape)}; expected {grid} + (A,).")
        for name, values, before in (
            ("features", features, self._features),
            ("actions", actions, None if self._action is None else self._action[:, None]),
        ):
            if values is not None and before is not None and values.shape[2:] != before.shape[2:]:
                raise ValueError(
                    f"{name} has {tuple(values.shape[2:])} dimensions per step; the rollout before "
                    f"had {tuple(before.shape[2:])}."
                )
        if actions is not None and self.stride > 1 and not actions.is_floating_point():
            raise ValueError(
                f"stride={self.stride} sums the actions between two steps, which is not possible "
                "for discrete actions as integers: give them one-hot, (M, N, A) floats."
            )
        if history is not None and history.shape != (self.num_envs, self.reach, *width):
            raise ValueError(
                f"history has shape {tuple(history.shape)}; expected "
                f"{(self.num_envs, self.reach, *width)}: (N, reach, D)."
            )
        if self.ends_at != "next":
            return
        if last is None or last.shape != (self.num_envs, *width):
            raise ValueError(
                f"ends_at='next' needs last, the features after the last step, of shape "
                f"{(self.num_envs, *width)}; got {None if last is None else tuple(last.shape)}."
            )
        expected = (0 if self.autoreset == "next_step" else int(ended.sum()), *width)
        found = (0, *width) if finals is None else tuple(finals.shape)
        if found != expected:
            raise ValueError(
                f"finals has shape {found}; expected {expected}: with ends_at='next' and "
                f"autoreset={self.autoreset!r} one final observation for each ended episode."
            )

    def state_dict(self) -> dict[str, Any]:
        """The history that the next rollout's windows reach back to."""
        arrays = {
            "valid": self._valid,
            "starting": self._starting,
            "resetting": self._resetting,
            "features": self._features,
            "led_to": self._prev_actions,
            "action": self._action,
        }
        return {name: array.clone() for name, array in arrays.items() if array is not None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``; if it does not fit, ValueError, and nothing changes."""
        history, envs = self._valid.shape, self._starting.shape
        valid = read_state("valid", state.get("valid"), history, torch.bool)
        starting, resetting = (
            read_state(name, state.get(name), envs, torch.bool)
            for name in ("starting", "resetting")
        )
        features, prev_actions, action = (
            None if state.get(name) is None else read_state(name, state[name], shape)
            for name, shape in (("features", history), ("led_to", history), ("action", envs))
        )
        self._valid, self._starting, self._resetting = valid, starting, resetting
        self._features, self._prev_actions, self._action = features, prev_actions, action
