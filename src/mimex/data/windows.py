"""Trailing windows of trajectories, by index: every observation is stored once.

A window ends at one observation and reaches back over the ``length - 1`` before it, never over
the start of its episode; what is missing is zeros that are marked as not valid.

What a vector environment returns at an episode's end depends on its autoreset mode:

- SAME_STEP: ``step`` returns the next episode's first observation; the final one comes apart, in
  ``info["final_obs"]``.
- NEXT_STEP: ``step`` returns the final observation; the step after it ignores its action and
  returns the next episode's first observation. That step is no transition.
- DISABLED: ``step`` returns the final observation, and the caller resets before the next step, so
  for a record of what the policy acted on the final observation comes apart as with SAME_STEP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mimex.data.state import read_state
from mimex.types import Array, Window

EndsAt = Literal["observation", "next"]
Autoreset = Literal["same_step", "next_step", "disabled"]


@dataclass(frozen=True, eq=False)
class WindowIndex:
    """The windows of a rollout as rows of a bank of features: gathered when asked for.

    Attributes:
        bank: ``(R, D)`` features, each once; row 0 is zeros, the padding.
        actions: ``(R, A)`` or ``(R,)``: the action that led to each row, or None.
        rows: ``(M * N, L)`` rows of each step's window, oldest first; 0 where it is padded.
        real: ``(M * N,)``: False for steps that are no transition (NEXT_STEP's reset steps);
            their windows are empty.
        starts: ``(M * N,)``: the step is the first of its episode.
    """

    bank: Tensor
    actions: Tensor | None
    rows: Tensor
    real: Tensor
    starts: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, steps: Tensor | slice) -> Window:
        """The windows of some steps, where step ``t`` of environment ``n`` is ``t * N + n``."""
        rows = self.rows[steps]
        actions = None if self.actions is None else self.actions[rows]
        return Window(self.bank[rows], rows > 0, actions)


class RolloutWindows:
    """Windows of every step of on-policy rollouts, carried over from one to the next.

    Args:
        length: Steps a window.
        num_envs: Environments side by side.
        ends_at: Whether the window of step t ends at ``"observation"`` o_t, on which the policy
            acted (the paper), or at ``"next"`` o_t+1, which the action led to.
        autoreset: The vector environment's autoreset mode.
        stride: Steps of the episode from one step of a window to the next; the actions between
            them are summed.
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
        for name, value in (("length", length), ("num_envs", num_envs), ("stride", stride)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        for name, choice, allowed in (
            ("ends_at", ends_at, get_args(EndsAt)),
            ("autoreset", autoreset, get_args(Autoreset)),
        ):
            if choice not in allowed:
                raise ValueError(f"{name}={choice!r} is unknown: use one of {', '.join(allowed)}.")
        self.length, self.num_envs = length, num_envs
        self.ends_at, self.autoreset, self.stride = ends_at, autoreset, stride
        # What the next rollout's windows reach back to, P = L * stride - 1 steps; filled in by the
        # first one.
        self._features: Tensor | None = None  # (N, P, D)
        try:
            self._valid = torch.zeros(num_envs, length * stride - 1, dtype=torch.bool)
        except RuntimeError as error:
            raise ValueError(
                f"num_envs={num_envs}, length={length}, stride={stride} do not fit into memory: "
                f"{error}"
            ) from error
        self._led_to: Tensor | None = None  # (N, P, A): the actions before those features
        self._action: Tensor | None = None  # (N, A): the action of the last step
        self._starting = torch.ones(num_envs, dtype=torch.bool)  # the next observation is a start
        self._resetting = torch.zeros(num_envs, dtype=torch.bool)  # the next step is no transition

    @property
    def reach(self) -> int:
        """Observations before a rollout that its windows may reach back to."""
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
        """Indexes the windows of one rollout of M steps.

        Args:
            features: ``(M, N, D)``: of the observation on which the policy acted at each step.
            ended: ``(M, N)`` bool: the step terminated or truncated its episode.
            last: ``(N, D)``: of the observation after the last step; for ``ends_at="next"``.
            finals: ``(F, D)``: of the final observations, one for each True of ``ended`` in
                row-major order; for ``ends_at="next"`` unless autoreset is NEXT_STEP, where
                final observations are part of the stream.
            actions: ``(M, N, A)``, or ``(M, N)`` integers: taken at each step.
            history: ``(N, reach, D)``: of the observations before these, for an encoder that has
                changed since; otherwise the features that the last call was given are kept.
        """
        features, ended = torch.as_tensor(features), torch.as_tensor(ended)
        last = None if last is None else torch.as_tensor(last)
        finals = None if finals is None else torch.as_tensor(finals)
        actions = None if actions is None else torch.as_tensor(actions)
        self._check(features, ended, last, finals, actions)
        envs, depth, device = self.num_envs, self.reach, features.device
        ended = ended.to(device)
        starts, resetting = self._starts(ended)
        before = self._features if history is None else torch.as_tensor(history)
        if before is None:
            before = features.new_zeros(envs, depth, *features.shape[2:])
        elif before.shape != (envs, depth, *features.shape[2:]):
            raise ValueError(
                f"history has shape {tuple(before.shape)}; expected "
                f"{(envs, depth, *features.shape[2:])}: (N, reach, D)."
            )

        # The bank: padding, history, the rollout, and what comes after its steps.
        parts = [features.new_zeros(1, *features.shape[2:]), before.flatten(0, 1)]
        parts += [features.flatten(0, 1)]
        if self.ends_at == "next":
            parts += [part for part in (last, finals) if part is not None]
        bank = torch.cat(parts)
        place = torch.arange(len(bank), device=device)
        past = place[1 : 1 + envs * depth].view(envs, depth)
        now = place[1 + envs * depth :][: ended.numel()].view(ended.shape)
        after = place[1 + envs * depth + ended.numel() :][:envs]
        final = place[1 + envs * depth + ended.numel() + envs :]

        # The row before each row in its episode; 0 where there is none.
        older = torch.zeros_like(place)
        if depth:
            known = self._valid.to(device)
            older[past[:, 1:]] = past[:, :-1] * known[:, :-1]
            older[now[0]] = past[:, -1] * (known[:, -1] & ~starts[0])
        older[now[1:]] = now[:-1] * ~starts[1:]
        ends = now
        if self.ends_at == "next":
            older[after] = now[-1]
            ends = torch.cat([now[1:], after[None]])
            if self.autoreset != "next_step":
                older[final] = now[ended]
                ends = ends.masked_scatter(ended, final)

        led_to = summed = None
        if actions is not None:
            actions = actions.to(device)
            led_to = summed = self._actions_before(bank, actions, starts, ended)
        far = older  # the row that is one step of a window before each
        for _ in range(self.stride - 1):
            summed = None if led_to is None or summed is None else summed + led_to[far]
            far = older[far]
        rows = _follow(ends * ~resetting, far, self.length)
        self._remember(bank, led_to, _follow(now[-1], older, depth), actions, ended, resetting)
        return WindowIndex(bank, summed, rows.flatten(0, 1), ~resetting.flatten(), starts.flatten())

    def _starts(self, ended: Tensor) -> tuple[Tensor, Tensor]:
        """Which observations start an episode, and which steps only reset: ``(M, N)`` each."""
        starting = self._starting.to(ended.device)[None]
        if self.autoreset != "next_step":
            return torch.cat([starting, ended[:-1]]), torch.zeros_like(ended)
        resetting = torch.cat([self._resetting.to(ended.device)[None], ended[:-1]])
        return torch.cat([starting, resetting[:-1]]), resetting

    def _actions_before(
        self, bank: Tensor, actions: Tensor, starts: Tensor, ended: Tensor
    ) -> Tensor:
        """The action that led to each row of the bank; zeros for padding and starts."""
        shape = actions.shape[2:]
        history, pending = self._led_to, self._action
        if history is None or pending is None:
            history = actions.new_zeros(*self._valid.shape, *shape)
            pending = actions.new_zeros(self.num_envs, *shape)
        previous = torch.cat([pending[None], actions[:-1]])
        previous = previous * ~starts.view(*starts.shape, *[1] * len(shape))
        parts = [actions.new_zeros(1, *shape), history.flatten(0, 1), previous.flatten(0, 1)]
        parts += [actions[-1], actions[ended]]
        return torch.cat(parts)[: len(bank)]

    def _remember(
        self,
        bank: Tensor,
        led_to: Tensor | None,
        rows: Tensor,
        actions: Tensor | None,
        ended: Tensor,
        resetting: Tensor,
    ) -> None:
        """Keeps what the next rollout's windows reach back to: rows ``(N, P)`` of the bank."""
        self._features, self._valid = bank[rows], rows > 0
        self._led_to = None if led_to is None else led_to[rows]
        self._action = None if actions is None else actions[-1].clone()
        self._resetting = ended[-1].clone()
        self._starting = (resetting if self.autoreset == "next_step" else ended)[-1].clone()

    def _check(
        self,
        features: Tensor,
        ended: Tensor,
        last: Tensor | None,
        finals: Tensor | None,
        actions: Tensor | None,
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
        if self._features is not None and self._features.shape[2:] != width:
            raise ValueError(
                f"features has {width} numbers a step; the rollout before had "
                f"{tuple(self._features.shape[2:])}."
            )
        if actions is not None and actions.shape[:2] != grid:
            raise ValueError(f"actions has shape {tuple(actions.shape)}; expected {grid} + (A,).")
        if actions is not None and self._action is not None:
            before = tuple(self._action.shape[1:])
            if actions.shape[2:] != before:
                raise ValueError(
                    f"actions has {tuple(actions.shape[2:])} numbers a step; the rollout before "
                    f"had {before}."
                )
        if actions is not None and self.stride > 1 and not actions.is_floating_point():
            raise ValueError(
                f"stride={self.stride} sums the actions between two steps, which codes of discrete "
                "ones do not allow: give them one-hot, (M, N, A) numbers."
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
        """All that the next rollout's windows reach back to."""
        state = {"valid": self._valid, "starting": self._starting, "resetting": self._resetting}
        for name in ("features", "led_to", "action"):
            value = getattr(self, f"_{name}")
            if value is not None:
                state[name] = value
        return {name: value.clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        steps, envs = self._valid.shape, self._starting.shape
        loaded: dict[str, Tensor | None] = {}
        for name, shape, kind in (
            ("valid", steps, torch.bool),
            ("starting", envs, torch.bool),
            ("resetting", envs, torch.bool),
            ("features", steps, None),
            ("led_to", steps, None),
            ("action", envs, None),
        ):
            value = state.get(name)
            if value is None and kind is None:
                loaded[name] = None
                continue
            loaded[name] = read_state(name, value, shape, kind)
        for name, value in loaded.items():
            setattr(self, f"_{name}", value)


def _follow(row: Tensor, before: Tensor, length: int) -> Tensor:
    """Rows ``(..., length)`` from following ``before`` back from the newest, oldest first."""
    trail = [row]
    while len(trail) < length:
        trail.append(before[trail[-1]])
    return torch.stack(trail[:length][::-1], dim=-1) if length else row.new_zeros(*row.shape, 0)
