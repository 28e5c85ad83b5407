"""How big the bonus is: its normalisation, its weight beta, and beta's schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from mimex.nn.running import RunningMeanStd
from mimex.types import Array

Normalise = Literal["none", "step", "return"]
Schedule = Literal["constant", "linear", "cosine"]


class Rewards(NamedTuple):
    """Both streams of reward, kept apart, and their sum."""

    total: Tensor
    extrinsic: Tensor
    intrinsic: Tensor
    """Already normalised, clipped and multiplied by beta."""


class BonusScale:
    """Turns the raw bonus into a reward: ``total = extrinsic + beta * normalised bonus``.

    Args:
        beta: Weight of the bonus.
        normalise: ``"none"``: the raw bonus (the paper). ``"step"``: divided by the running
            standard deviation of its values. ``"return"``: divided by the running standard
            deviation of its discounted sums, which run along time in each environment (RND).
            Nothing is subtracted: a bonus stays positive.
        discount: Of those sums.
        episodic: Whether the sums start anew where an episode ends.
        clip: Largest normalised bonus, or None.
        schedule: How beta goes from ``beta`` to ``final_beta`` over ``over_steps`` environment
            steps, after which it stays.
        final_beta: Beta at the end of the schedule.
        over_steps: Length of the schedule, in environment steps.
    """

    def __init__(
        self,
        beta: float = 0.05,
        normalise: Normalise = "none",
        *,
        discount: float = 0.99,
        episodic: bool = False,
        clip: float | None = None,
        schedule: Schedule = "constant",
        final_beta: float = 0.0,
        over_steps: int | None = None,
    ) -> None:
        if normalise not in get_args(Normalise):
            raise ValueError(
                f"normalise={normalise!r} is unknown: use one of {', '.join(get_args(Normalise))}."
            )
        if schedule not in get_args(Schedule):
            raise ValueError(
                f"schedule={schedule!r} is unknown: use one of {', '.join(get_args(Schedule))}."
            )
        if schedule != "constant" and not (over_steps and over_steps > 0):
            raise ValueError(
                f"schedule={schedule!r} needs over_steps, its length in environment steps; got "
                f"{over_steps}."
            )
        if not 0 <= discount < 1:
            raise ValueError(f"discount={discount} is outside [0, 1).")
        if clip is not None and not clip > 0:
            raise ValueError(f"clip={clip} must be positive, or None for no clip.")
        for name, value in (("beta", beta), ("final_beta", final_beta)):
            if not math.isfinite(value):
                raise ValueError(f"{name}={value} must be finite.")
        self.normalise, self.discount, self.episodic, self.clip = (
            normalise,
            discount,
            episodic,
            clip,
        )
        self.schedule, self.over_steps = schedule, over_steps
        self.initial_beta, self.final_beta = beta, final_beta
        self.steps = 0  # environment steps so far
        self._statistics = RunningMeanStd()
        self._sums: Tensor | None = None  # (N,) discounted sums of the bonus so far

    @property
    def beta(self) -> float:
        """The weight of the bonus now."""
        if self.schedule == "constant" or self.over_steps is None:
            return self.initial_beta
        done = min(self.steps / self.over_steps, 1.0)
        left = 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.final_beta + (self.initial_beta - self.final_beta) * left

    def combine(
        self, extrinsic: Array, bonus: Array, ended: Array | None = None, *, update: bool = True
    ) -> Rewards:
        """Weighs a bonus against the extrinsic reward.

        Args:
            extrinsic: ``(M, N)`` of a rollout, or ``(N,)`` of one step of each environment (with
                ``normalise="return"`` these must follow each other in time) or of a batch.
            bonus: The raw bonus, of the same shape.
            ended: The step ended its episode; needed where ``episodic``.
            update: Whether statistics take these in and the schedule moves on by their number.
        """
        extrinsic, bonus = torch.as_tensor(extrinsic), torch.as_tensor(bonus)
        if extrinsic.shape != bonus.shape or bonus.ndim not in (1, 2):
            raise ValueError(
                f"extrinsic has shape {tuple(extrinsic.shape)} and bonus {tuple(bonus.shape)}; "
                "expected the same shape, (M, N) or (N,)."
            )
        for name, values in (("extrinsic", extrinsic), ("bonus", bonus)):
            bad = (~values.isfinite()).nonzero()
            if len(bad):
                step, env = ([0, *bad[0].tolist()])[-2:]
                raise ValueError(
                    f"{name} is {float(values[tuple(bad[0].tolist())])} at step {step} of "
                    f"environment {env}. Nothing was changed."
                )
        if update and self.normalise == "step":
            self._statistics.update(bonus.flatten())
        elif update and self.normalise == "return":
            self._statistics.update(self._discounted_sums(bonus, ended).flatten())
        scaled = bonus
        if self.normalise != "none":
            scaled = bonus / self._statistics.std.to(bonus.device, bonus.dtype)
        if self.clip is not None:
            scaled = scaled.clamp(max=self.clip)
        intrinsic = self.beta * scaled
        if update:
            self.steps += bonus.numel()
        return Rewards(extrinsic + intrinsic, extrinsic, intrinsic)

    def _discounted_sums(self, bonus: Tensor, ended: Array | None) -> Tensor:
        """The running discounted sum of each environment after every step: ``(M, N)``."""
        rows = bonus.double().reshape(-1, bonus.shape[-1])
        if self._sums is None:
            self._sums = torch.zeros_like(rows[0])
        if self._sums.shape != rows[0].shape:
            raise ValueError(
                f"bonus has {rows.shape[1]} environments; the steps before had {len(self._sums)}. "
                "normalise='return' follows environments through time; use 'step' for batches."
            )
        if self.episodic and ended is None:
            raise ValueError("episodic=True needs ended: where episodes end.")
        keep = torch.ones_like(rows)
        if self.episodic:
            keep = 1 - torch.as_tensor(ended).to(rows.device).double().reshape(rows.shape)
        sums = torch.empty_like(rows)
        running = self._sums
        for t, row in enumerate(rows):
            sums[t] = running = self.discount * running + row
            running = running * keep[t]
        self._sums = running
        return sums

    def state_dict(self) -> dict[str, Any]:
        """Statistics, discounted sums and the place in the schedule."""
        state: dict[str, Any] = {
            "steps": self.steps,
            "statistics": self._statistics.state_dict(),
        }
        if self._sums is not None:
            state["sums"] = self._sums.clone()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self._statistics.load_state_dict(state["statistics"])
        sums = state.get("sums")
        self._sums = None if sums is None else sums.clone()
        self.steps = int(state["steps"])
