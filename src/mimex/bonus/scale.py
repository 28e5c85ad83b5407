"""The scale of the bonus: from a raw bonus to an intrinsic reward."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from mimex.data.checks import require_choice
from mimex.nn import processes
from mimex.types import Array, Metrics

Schedule = Literal["constant", "linear", "cosine"]

BETA = 0.3
"""Default weight of the bonus."""

REWARD_DECAY = 0.1
"""Default factor on beta after extrinsic reward has been found."""

WARMUP = 64
"""Steps of each environment, or sampled batches, before anything is rewarded."""

HALF_LIFE = 300
"""Half-life of the moving averages, in steps of each environment or sampled batches; and the steps
without reward after which beta is no longer reduced."""


class _Streams(NamedTuple):
    total: Tensor
    extrinsic: Tensor
    intrinsic: Tensor


class Rewards(_Streams):
    """The sum of both reward streams, the extrinsic and the intrinsic reward.

    Attributes:
        survival: The part of the intrinsic reward that is ``survival_bonus``; not an item of the
            tuple.
    """

    survival: Tensor | float = 0.0

    @property
    def share(self) -> float:
        """Fraction of the intrinsic reward in the sum of absolute rewards, over all processes."""
        intrinsic, extrinsic = (
            processes.mean(stream.abs().sum()) for stream in (self.intrinsic, self.extrinsic)
        )
        return float(intrinsic / (intrinsic + extrinsic).clamp(min=1e-12))


class BonusScale:
    """Turns the raw bonus into a reward: ``total = extrinsic + beta * normalized bonus``.

    The normalized bonus is ``bonus * sqrt(1 - gamma^2) / rms``, where ``rms`` is the recent root
    mean square of the bonus. If bonuses are rare and independent, their discounted returns then
    have a standard deviation of 1, as with RND's return normalization.

    - Nothing is clipped: rare large bonuses count in full.
    - The first 64 steps have no bonus, because the errors of a new network fall most there.
    - Beta is reduced once extrinsic reward has been found (``reward_decay``).

    Args:
        beta: Weight of the bonus.
        normalize: Whether to normalize the bonus; False for the raw bonus, as in the paper (with
            beta 0.05), whose size differs between tasks.
        reward_decay: Factor on beta for 300 steps after any environment received a positive reward;
            1 for no reduction. Not used for raw bonuses.
        survival_bonus: Reward of every step, as a multiple of the mean cost (negative reward) of a
            step. 1 cancels the mean cost, so that ending the episode early is no way to avoid it.
            Without a bonus (``NoBonus``) nothing is added.
        discount: Discount factor gamma of the returns.
        schedule: Decay of beta from ``beta`` to ``final_beta`` over ``over_steps`` environment
            steps (in a run: over its horizon).
        final_beta: Beta at the end of the schedule.
        over_steps: Length of the schedule, in environment steps.
    """

    no_settings = ("discount",)  # the agent's

    def __init__(
        self,
        beta: float = BETA,
        *,
        normalize: bool = True,
        reward_decay: float = REWARD_DECAY,
        survival_bonus: float = 0.0,
        discount: float = 0.99,
        schedule: Schedule = "constant",
        final_beta: float = 0.0,
        over_steps: int | None = None,
    ) -> None:
        require_choice(Schedule, schedule=schedule)
        if schedule != "constant" and not (over_steps and over_steps > 0):
            raise ValueError(
                f"schedule={schedule!r} needs over_steps, its length in environment steps; got "
                f"{over_steps}."
            )
        if not 0 <= discount < 1:
            raise ValueError(f"discount={discount} is outside [0, 1).")
        weights = {
            "beta": beta,
            "final_beta": final_beta,
            "reward_decay": reward_decay,
            "survival_bonus": survival_bonus,
        }
        for name, number in weights.items():
            if not isinstance(number, int | float) or not math.isfinite(number):
                raise ValueError(f"{name}={number} must be a finite number.")
        self.normalize, self.discount, self.survival_bonus = normalize, discount, survival_bonus
        self.schedule, self.over_steps = schedule, over_steps
        self.initial_beta, self.final_beta, self.reward_decay = beta, final_beta, reward_decay
        self.steps = 0  # environment steps so far
        self._rows = 0  # steps of each environment, or sampled batches, so far
        self._weight = 0.0  # of all rows in the exponential moving sums; approaches 1
        self._square = 0.0  # exponential moving sum of the squared bonus
        self._cost = 0.0  # and of the cost
        self._unrewarded = -1  # rows since the last positive reward; -1 if there was none

    @property
    def beta(self) -> float:
        """The current weight of the bonus."""
        rewarding = self.normalize and 0 <= self._unrewarded < HALF_LIFE
        factor = self.reward_decay if rewarding else 1.0
        if self.schedule == "constant" or self.over_steps is None:
            return factor * self.initial_beta
        progress = min(self.steps / self.over_steps, 1.0)
        left = 1 - progress if self.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
        return factor * (self.final_beta + (self.initial_beta - self.final_beta) * left)

    def combine(
        self,
        extrinsic: Array,
        bonus: Array,
        *,
        scored: Tensor | None = None,
        update: bool = True,
    ) -> Rewards:
        """Adds the bonus to the extrinsic reward.

        One call for a rollout gives the same rewards as one call per step, except that beta's
        schedule advances once per call.

        Args:
            extrinsic: ``(M, N)`` of a rollout, or ``(N,)`` of one step of each environment or of a
                sampled batch.
            bonus: The raw bonus, of the same shape.
            scored: Steps that have a bonus, bool of the same shape; all by default. The others do
                not enter the bonus's rms.
            update: Whether to update the statistics and advance the schedule.
        """
        extrinsic, bonus = _finite("extrinsic", extrinsic), _finite("bonus", bonus)
        if extrinsic.shape != bonus.shape or bonus.ndim not in (1, 2):
            raise ValueError(
                f"extrinsic has shape {tuple(extrinsic.shape)} and bonus {tuple(bonus.shape)}; "
                "expected the same shape, (M, N) or (N,)."
            )
        scaled, survival = bonus, torch.zeros_like(bonus)
        if bonus.numel():
            rows = bonus.double().reshape(-1, bonus.shape[-1])  # (M, N)
            rms, cost = self._statistics(rows, extrinsic, scored, update=update)  # (M, 1) each
            if self.normalize:
                unit = math.sqrt(1 - self.discount**2)
                normalized = torch.where(rms > 0, unit * rows / rms, 0.0)
                scaled = normalized.reshape(bonus.shape).to(bonus.dtype)
            survival = (self.survival_bonus * cost).expand_as(rows)
            survival = survival.reshape(bonus.shape).to(bonus.dtype)
        intrinsic = self.beta * scaled + survival
        if update and bonus.numel():
            self.steps += bonus.numel() * processes.size()
            self._count_unrewarded(extrinsic)
        rewards = Rewards(extrinsic + intrinsic, extrinsic, intrinsic)
        rewards.survival = survival
        return rewards

    def _count_unrewarded(self, extrinsic: Tensor) -> None:
        """Counts the rows since an environment of any process received a positive reward."""
        positive = (extrinsic > 0).reshape(-1, extrinsic.shape[-1]).any(1).double()
        rewarded = (processes.mean(positive) > 0).nonzero()
        if len(rewarded):
            self._unrewarded = len(positive) - 1 - int(rewarded[-1])
        elif self._unrewarded >= 0:
            self._unrewarded += len(positive)

    def _statistics(
        self, bonus: Tensor, extrinsic: Tensor, scored: Tensor | None, *, update: bool
    ) -> tuple[Tensor, Tensor]:
        """The rms of the bonus (0 during the warm-up) and the mean cost at each row, ``(M, 1)``."""
        costs = (-extrinsic.double()).clamp(min=0).reshape(bonus.shape)
        counted = torch.ones_like(bonus) if scored is None else scored.reshape(bonus.shape).double()
        squares = (bonus.square() * counted).sum(1) / counted.sum(1).clamp(min=1)
        means = processes.mean(torch.stack([squares, costs.mean(1)], dim=1).cpu())
        keep = 0.5 ** (1 / HALF_LIFE)
        rows = []
        for square, cost in means.tolist():
            if update:
                self._rows += 1
                self._weight = keep * self._weight + 1 - keep
                self._square = keep * self._square + (1 - keep) * square
                self._cost = keep * self._cost + (1 - keep) * cost
            rms = math.sqrt(self._square / self._weight) if self._rows > WARMUP else 0.0
            rows.append((rms, self._cost / self._weight if self._square else 0.0))
        columns = torch.tensor(rows, dtype=torch.float64, device=bonus.device)
        return columns[:, :1], columns[:, 1:]

    def metrics(self, raw: Array, rewards: Rewards) -> Metrics:
        """Metrics of raw bonuses and their rewards, over all processes."""
        return {
            "bonus/mean": float(processes.mean(torch.as_tensor(raw).float().mean())),
            "bonus/reward": float(processes.mean(rewards.intrinsic.mean())),
            "bonus/share": rewards.share,
            "bonus/beta": self.beta,
        }

    def state_dict(self) -> dict[str, Any]:
        """Statistics and counters."""
        return {name: getattr(self, attribute) for name, attribute in _STATE.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``; if it does not fit, ValueError, and nothing changes."""
        for name in _STATE:
            least = -1 if name == "unrewarded" else 0
            value = state.get(name) if isinstance(state, Mapping) else None
            if not isinstance(value, int | float) or not least <= value < math.inf:
                raise ValueError(
                    f"the scale's {name} is {value!r} in the state; expected a number of at least "
                    f"{least}: it is damaged, or was saved by another version of mimex."
                )
        for name, attribute in _STATE.items():
            setattr(self, attribute, type(getattr(self, attribute))(state[name]))


_STATE = {"steps": "steps"} | {
    name: f"_{name}" for name in ("rows", "weight", "square", "cost", "unrewarded")
}
"""Attributes of the statistics and counters, by their name in a state."""


def _finite(name: str, values: Array) -> Tensor:
    """Values as a floating-point tensor, all finite."""
    numbers = torch.as_tensor(values)
    if numbers.is_complex():
        raise ValueError(f"{name} has complex numbers; expected real ones. Nothing was changed.")
    if not numbers.is_floating_point():
        numbers = numbers.float()
    bad = (~numbers.isfinite()).nonzero()
    if len(bad):
        step, env = ([0, *bad[0].tolist()])[-2:]
        raise ValueError(
            f"{name} is {float(numbers[tuple(bad[0].tolist())])} at step {step} of environment "
            f"{env}. Nothing was changed."
        )
    return numbers
