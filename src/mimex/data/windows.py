"""Windows of on-policy rollouts, by index: every observation is stored once.

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
from typing import Any, Literal

import torch
from torch import Tensor

from mimex.data.checks import (
    copied,
    fitting_into_memory,
    read_state,
    require_choice,
    require_positive,
)
from mimex.data.trail import PADDING, sum_between, trail
from mimex.types import Array, Window

EndsAt = Literal["observation", "next"]
Autoreset = Literal["same_step", "next_step", "disabled"]


@dataclass(frozen=True, eq=False)
class WindowIndex:
    """Windows as rows of a bank of features: gathered when asked for.

    Attributes:
        bank: ``(R, D)`` features, each once; row 0 is zeros, the padding.
        actions: ``(R, A)`` or ``(R,)``: the action that led to each row, or None.
        path: ``(M * N, L, S)`` rows of each step's window, as ``trail`` gives them.
        real: ``(M * N,)``: False for steps that are no transition (NEXT_STEP's reset steps);
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
        """``(M * N, L)`` rows of each window's steps, oldest first; 0 where it is padded."""
        return self.path[..., -1]

    def __getitem__(self, steps: Tensor | slice) -> Window:
        """The windows of some steps, where step ``t`` of environment ``n`` is ``t * N + n``."""
        path = self.path[steps]
        rows, known = path[..., -1], path != PADDING
        actions = None if self.actions is None else sum_between(self.actions[path], known)
        return Window(self.bank[rows], known[..., -1], actions)

    def greatest(self, scores: Tensor, count: int) -> Window:
        """Of the windows without padding those with the greatest scores, given for all steps."""
        full = (self.rows != PADDING).all(dim=1)
        ranked = scores.flatten().masked_fill(~full, -torch.inf)
        return self[ranked.topk(min(count, int(full.sum()))).indices]


class RolloutWindows:
    """Windows of every step of on-policy rollouts, carried over from one to the next.

    All is on the device of the features.

    Args:
        length: Steps a window.
        num_envs: Number of parallel environments.
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
        require_positive(length=length, num_envs=num_envs, stride=stride)
        require_choice(EndsAt, ends_at=ends_at)
        require_choice(Autoreset, autoreset=autoreset)
        self.length, self.num_envs = length, num_envs
        self.ends_at, self.autoreset, self.stride = ends_at, autoreset, stride
        # What the next rollout's windows reach back to, P = L * stride - 1 steps; features and
        # actions are filled in by the first one.
        with fitting_into_memory(num_envs=num_envs, length=length, stride=stride):
            self._valid = torch.zeros(num_envs, length * stride - 1, dtype=torch.bool)
            # The next observation is a start; the next step is no transition.
            self._starting = torch.ones(num_envs, dtype=torch.bool)
            self._resetting = torch.zeros(num_envs, dtype=torch.bool)
        self._features: Tensor | None = None  # (N, P, D)
        self._led_to: Tensor | None = None  # (N, P, A): the actions before those features
        self._action: Tensor | None = None  # (N, A): the action of the last step

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
        features = torch.as_tensor(features)
        device, width = features.device, features.shape[2:]
        ended = torch.as_tensor(ended, device=device)
        last, finals = _on(device, last), _on(device, finals)
        actions, before = _on(device, actions), _on(device, history)
        self._check(features, ended, last, finals, actions, before)
        steps, envs, depth = len(ended), self.num_envs, self.reach
        starting, resets = self._starting.to(device)[None], torch.zeros_like(ended)
        if self.autoreset == "next_step":
            resets = torch.cat([self._resetting.to(device)[None], ended[:-1]])
        starts = torch.cat([starting, (resets if self.autoreset == "next_step" else ended)[:-1]])

        # The bank: padding, history, the rollout, and what comes after its steps.
        past = features.new_zeros(envs, depth, *width) if self._features is None else self._features
        past = past.to(device) if before is None else before
        parts = [features.new_zeros(1, *width), past.flatten(0, 1), features.flatten(0, 1)]
        if self.ends_at == "next":
            parts += [part for part in (last, finals) if part is not None]
        bank = torch.cat(parts)
        place = torch.arange(len(bank), device=device)
        old = place[1 : 1 + envs * depth].view(envs, depth)
        now = place[1 + envs * depth :][: steps * envs].view(steps, envs)
        final = place[1 + envs * (depth + steps + 1) :]

        # The row before each row in its episode.
        older = torch.zeros_like(place)
        if depth:
            known = self._valid.to(device)
            older[old[:, 1:]] = old[:, :-1] * known[:, :-1]
            older[now[0]] = old[:, -1] * (known[:, -1] & ~starts[0])
        older[now[1:]] = now[:-1] * ~starts[1:]
        ends = now
        if self.ends_at == "next":
            ends = now + envs  # the rows of the last observations follow those of the rollout
            older[ends[-1]] = now[-1]
            if self.autoreset != "next_step":
                older[final] = now[ended]
                ends = ends.masked_scatter(ended, final)

        led_to = None if actions is None else self._actions_before(actions, starts, ended)
        path = trail(ends * ~resets, older.__getitem__, self.length, self.stride)
        kept = trail(now[-1], older.__getitem__, depth).squeeze(-1)  # (N, P)
        self._features, self._valid = bank[kept], kept != PADDING
        self._led_to = None if led_to is None else led_to[kept]
        self._action = None if actions is None else actions[-1].clone()
        self._resetting = ended[-1].clone()
        self._starting = (resets if self.autoreset == "next_step" else ended)[-1].clone()
        return WindowIndex(bank, led_to, path.flatten(0, 1), ~resets.flatten(), starts.flatten())

    def _actions_before(self, actions: Tensor, starts: Tensor, ended: Tensor) -> Tensor:
        """The action that led to each row of the bank; zeros for padding and starts."""
        history, pending, kind = self._led_to, self._action, actions.shape[2:]
        if history is None or pending is None:
            history = actions.new_zeros(*self._valid.shape, *kind)
            pending = actions.new_zeros(self.num_envs, *kind)
        previous = torch.cat([pending.to(actions)[None], actions[:-1]])
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
                    f"{name} has {tuple(values.shape[2:])} numbers a step; the rollout before had "
                    f"{tuple(before.shape[2:])}."
                )
        if actions is not None and self.stride > 1 and not actions.is_floating_point():
            raise ValueError(
                f"stride={self.stride} sums the actions between two steps, which codes of discrete "
                "ones do not allow: give them one-hot, (M, N, A) numbers."
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
        """All that the next rollout's windows reach back to."""
        return copied(
            valid=self._valid,
            starting=self._starting,
            resetting=self._resetting,
            features=self._features,
            led_to=self._led_to,
            action=self._action,
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        steps, envs = self._valid.shape, self._starting.shape
        shapes = {"valid": steps, "starting": envs, "resetting": envs}
        loaded: dict[str, Tensor | None] = {
            name: read_state(name, state.get(name), shape, torch.bool)
            for name, shape in shapes.items()
        }
        for name, shape in (("features", steps), ("led_to", steps), ("action", envs)):
            known = state.get(name) is not None
            loaded[name] = read_state(name, state[name], shape) if known else None
        for name, value in loaded.items():
            setattr(self, f"_{name}", value)


def _on(device: torch.device, values: Array | None) -> Tensor | None:
    return None if values is None else torch.as_tensor(values, device=device)
