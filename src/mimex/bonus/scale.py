"""How big the bonus is beside the task's reward: one rule, its weight beta, and beta's schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from mimex.nn import processes
from mimex.types import Array, Metrics

Unit = Literal["task", "raw"]
Schedule = Literal["constant", "linear", "cosine"]

BETA = 0.3
"""The weight of the bonus where none is given (docs/how-big.md has the measurements)."""

HALF_LIFE = 300.0
"""Steps of each environment, or sampled batches, after which what was seen counts half. Bonuses
fall by a factor of up to 1,000 while they learn: with 300 what is paid stays within a factor of
four, with 1,000 of 25; with 100 a novel episode would become its own measure."""

MEASURED = 300
"""Steps of each environment, or sampled batches, over which the size of the task's reward is
measured, the first of them least, since a reward that is normalised takes some steps to find its
size. Later it may fall and does not rise: a task pays more because the agent succeeds, and a bonus
that followed would grow beside success; it costs less because the agent avoids costs, and a bonus
that stayed would drown what is left (Pendulum, whose costs fall from 6 a step to 0.8: with MIMEx
sized by the first it came to -190 to -450, without to -160)."""

LONGEST = 1e12
"""Half-lives beyond it fade by less than a double can tell from nothing."""

LARGEST = 10.0
"""No step is paid more than so many average bonuses (raw streams reach 36)."""


class _Streams(NamedTuple):
    total: Tensor
    extrinsic: Tensor
    intrinsic: Tensor


class Rewards(_Streams):
    """The sum of both streams of reward, the task's own, and the bonus as it is paid.

    Attributes:
        living: The part of the bonus that every step has alike, for living on; no item of the
            tuple.
    """

    living: Tensor | float = 0.0

    @property
    def share(self) -> float:
        """How much of all reward is bonus, by absolute size, in all processes."""
        intrinsic, extrinsic = (
            processes.mean(stream.abs().sum()) for stream in (self.intrinsic, self.extrinsic)
        )
        return float(intrinsic / (intrinsic + extrinsic).clamp(min=1e-12))


class BonusScale:
    """Turns the raw bonus into a reward: ``total = extrinsic + beta * bonus in its unit``.

    With ``unit="task"`` an average bonus is paid beta times the average size of the task's reward
    at the start, or of now where that is less. With beta 0.3, say, a task that costs 1 a step pays
    an average bonus of 0.3. Where the task pays next to nothing (sparse, or no reward yet), a
    return of 1 stands for it: average bonuses then add up to a discounted return of beta. Once the
    agent finds more than that, the bonus is small beside it. Nothing is subtracted: a bonus stays
    positive.

    Where every step costs something and ending the episode is a way out, ``alive=1`` pays an
    average step's cost back, so that beta can stay as small as novelty should be.

    Args:
        beta: Weight of the bonus: size of an average bonus beside the average size of the task's
            reward, or beside returns of 1 where the task pays less.
        alive: What every step is paid beside the bonus, in average sizes of the task's reward: 1
            covers an average cost. Nothing is paid where there is no bonus, or where nothing costs.
        found: Factor on beta while the task pays, that is within ``half_life`` steps after any
            environment got a reward above 0: below 1 novelty gives way to what it has found, and
            takes over again when that is lost.
        unit: Whether beta is beside the "task", or a factor on the "raw" bonus as it comes, whose
            size is another in every task (the paper, with beta 0.05).
        discount: Of returns, for what a return of 1 is in a step.
        half_life: Of the average bonus: steps of each environment (off-policy: sampled batches)
            after which what was seen counts half.
        schedule: How beta goes from ``beta`` to ``final_beta`` over ``over_steps`` environment
            steps (in a run: over its horizon), after which it stays.
        final_beta: Beta at the end of the schedule, where there is one.
        over_steps: Length of the schedule, in environment steps.
    """

    no_settings = ("discount",)  # the agent's

    def __new__(cls, *args: Any, **kwargs: Any) -> BonusScale:
        for name in ("normalise", "normalize"):
            if name in kwargs:
                raise TypeError(
                    f"BonusScale has no {name}=: it measures the bonus by itself. Leave it out "
                    "(unit='task'), or use unit='raw' for the bonus as it comes. The features of a "
                    "bonus are normalised by MIMEx(normalise=True)."
                )
        return super().__new__(cls)

    def __init__(
        self,
        beta: float = BETA,
        unit: Unit = "task",
        *,
        alive: float = 0.0,
        found: float = 1.0,
        discount: float = 0.99,
        half_life: float = HALF_LIFE,
        schedule: Schedule = "constant",
        final_beta: float = 0.0,
        over_steps: int | None = None,
    ) -> None:
        for name, value, allowed in (
            ("unit", unit, get_args(Unit)),
            ("schedule", schedule, get_args(Schedule)),
        ):
            if value not in allowed:
                raise ValueError(f"{name}={value!r} is unknown: use one of {', '.join(allowed)}.")
        if schedule != "constant" and not (over_steps and over_steps > 0):
            raise ValueError(
                f"schedule={schedule!r} needs over_steps, its length in environment steps; got "
                f"{over_steps}."
            )
        if not 0 <= discount < 1:
            raise ValueError(f"discount={discount} is outside [0, 1).")
        if not 0 < half_life <= LONGEST:
            raise ValueError(f"half_life={half_life} must be positive and at most {LONGEST}.")
        numbers = {"beta": beta, "final_beta": final_beta, "alive": alive, "found": found}
        for name, number in numbers.items():
            if not isinstance(number, int | float) or not math.isfinite(number):
                raise ValueError(f"{name}={number} must be a finite number.")
        if alive and unit == "raw":
            raise ValueError(f"alive={alive} is in units of the task: it needs unit='task'.")
        self.unit, self.discount, self.half_life, self.alive = unit, discount, half_life, alive
        self.schedule, self.over_steps = schedule, over_steps
        self.initial_beta, self.final_beta, self.found = beta, final_beta, found
        self.steps = 0  # environment steps so far
        self._weight = 0.0  # of all bonuses that were seen, fading; 1 when they were many
        self._bonus = 0.0  # fading sum of their sizes, of the same weight
        self._measured = 0  # steps over which the task's reward was measured
        self._task = 0.0  # its average size over these, later ones counting more
        self._paid = 0.0  # fading sum of its sizes since, of the bonuses' weight
        self._since = -1  # steps of each environment since the task paid something; -1: never

    @property
    def beta(self) -> float:
        """The weight of the bonus now."""
        factor = self.found if 0 <= self._since < self.half_life else 1.0
        if self.schedule == "constant" or self.over_steps is None:
            return factor * self.initial_beta
        done = min(self.steps / self.over_steps, 1.0)
        left = 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
        return factor * (self.final_beta + (self.initial_beta - self.final_beta) * left)

    def combine(self, extrinsic: Array, bonus: Array, *, update: bool = True) -> Rewards:
        """Weighs a bonus against the extrinsic reward.

        A rollout gives the same numbers at once as step by step, but for beta, which moves (by its
        schedule, or where ``found`` is not 1) from call to call.

        Args:
            extrinsic: ``(M, N)`` of a rollout, or ``(N,)`` of one step of each environment or of a
                sampled batch.
            bonus: The raw bonus, of the same shape.
            update: Whether averages take these in and the schedule moves on by their number.
        """
        extrinsic, bonus = _numbers("extrinsic", extrinsic), _numbers("bonus", bonus)
        if extrinsic.shape != bonus.shape or bonus.ndim not in (1, 2):
            raise ValueError(
                f"extrinsic has shape {tuple(extrinsic.shape)} and bonus {tuple(bonus.shape)}; "
                "expected the same shape, (M, N) or (N,)."
            )
        scaled, living = bonus, torch.zeros_like(bonus)
        if self.unit == "task" and bonus.numel():
            average, task = self._measure(extrinsic, bonus, update=update)
            unit = task.clamp(min=1 - self.discount)
            rows = bonus.double().reshape(len(average), -1)
            multiples = torch.where(average > 0, rows / average, 0.0).clamp(-LARGEST, LARGEST)
            scaled = (unit * multiples).reshape(bonus.shape).to(bonus.dtype)
            if self.alive:
                paid = torch.where(average > 0, self.alive * task, 0.0)
                living = paid.expand_as(rows).reshape(bonus.shape).to(bonus.dtype)
        intrinsic = self.beta * scaled + living
        if update and bonus.numel():
            self.steps += bonus.numel() * processes.size()
            self._look_for_pay(extrinsic)
        rewards = Rewards(extrinsic + intrinsic, extrinsic, intrinsic)
        rewards.living = living
        return rewards

    def _look_for_pay(self, extrinsic: Tensor) -> None:
        """Notes how long ago an environment of any process got a reward above 0."""
        rows = (extrinsic > 0).reshape(-1, extrinsic.shape[-1]).any(1).double()
        paid = (processes.mean(rows) > 0).nonzero()
        if len(paid):
            self._since = len(rows) - 1 - int(paid[-1])
        elif self._since >= 0:
            self._since += len(rows)

    def _measure(self, extrinsic: Tensor, bonus: Tensor, *, update: bool) -> tuple[Tensor, Tensor]:
        """The average bonus at each step, and the task's size: ``(M, 1)`` each.

        The average fades, and is taken over what was seen alone: the first bonus is the average
        one, and the n-th at most n times it.
        """
        keep = 0.5 ** (1 / self.half_life)
        weight, novel, measured, task = self._weight, self._bonus, self._measured, self._task
        paid = self._paid
        measures = []
        sizes = [
            x.double().abs().reshape(-1, x.shape[-1]).mean(1).cpu() for x in (bonus, extrinsic)
        ]
        for size, reward in processes.mean(torch.stack(sizes, dim=1)).tolist():
            if update or not weight:
                weight = keep * weight + 1 - keep
                novel = keep * novel + (1 - keep) * size
                paid = keep * paid + (1 - keep) * reward
                if measured < MEASURED:
                    measured += 1
                    task += 2 * (reward - task) / (measured + 1)  # step i weighs i
            now = task if measured < MEASURED else min(task, paid / weight)
            measures.append((novel / weight, now))
        if update:
            self._weight, self._bonus, self._measured, self._task = weight, novel, measured, task
            self._paid = paid
        average, size = torch.tensor(measures, dtype=torch.float64, device=bonus.device).unbind(1)
        return average.unsqueeze(1), size.unsqueeze(1)

    def metrics(self, raw: Array, rewards: Rewards) -> Metrics:
        """What a logger should say about what was paid for raw bonuses, in all processes."""
        return {
            "bonus/mean": float(processes.mean(torch.as_tensor(raw).float().mean())),
            "bonus/reward": float(processes.mean(rewards.intrinsic.mean())),
            "bonus/share": rewards.share,
            "bonus/beta": self.beta,
        }

    def state_dict(self) -> dict[str, Any]:
        """Averages and the place in the schedule."""
        return {
            "steps": self.steps,
            "weight": self._weight,
            "bonus": self._bonus,
            "measured": self._measured,
            "task": self._task,
            "paid": self._paid,
            "since": self._since,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        names = self.state_dict()
        if isinstance(state, Mapping):  # states of before did not look for pay
            state = {"since": -1, **state}
        if not isinstance(state, Mapping) or any(name not in state for name in names):
            raise ValueError(
                f"the state of the scale lacks one of {', '.join(names)}: it is damaged, or was "
                "saved by a version of mimex before 'task' units; begin the run anew."
            )
        if not all(isinstance(state[name], int | float) for name in names):
            raise ValueError(f"the state of the scale is {dict(state)}: expected numbers.")
        averages = [float(state[name]) for name in ("weight", "bonus", "task", "paid")]
        if not all(math.isfinite(value) and value >= 0 for value in averages):
            raise ValueError(f"the state of the scale has the averages {averages}: it is damaged.")
        counts = state["steps"], state["measured"], state["since"]
        least = 0, 0, -1
        if not all(float(n).is_integer() and n >= m for n, m in zip(counts, least, strict=True)):
            raise ValueError(f"the state of the scale has the counts {counts}: it is damaged.")
        self.steps, self._measured, self._since = map(int, counts)
        self._weight, self._bonus, self._task, self._paid = averages


def _numbers(name: str, values: Array) -> Tensor:
    """Values as floating-point numbers, all finite."""
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
