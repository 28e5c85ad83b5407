"""A bonus with its size beside the task's reward, and what it looks at: what all adapters share."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Self, TypedDict

import torch
from gymnasium import spaces
from torch import Tensor

from mimex.bonus.base import IntrinsicReward
from mimex.bonus.inputs import Encoder, unchanged_if_refused
from mimex.bonus.scale import BETA, HALF_LIFE, BonusScale, Rewards
from mimex.data.checks import require_choice, require_positive
from mimex.data.spaces import View, all_discrete
from mimex.data.windows import EndsAt
from mimex.interop.reader import SpaceReader, action_reader
from mimex.types import Array, Metrics


class BonusOptions(TypedDict, total=False):
    """What all adapters take beyond the bonus; see ``WeightedBonus``."""

    beta: float | BonusScale
    ends_at: EndsAt
    stride: int
    view: View
    encoder: Encoder | None


class WeightedBonus:
    """A bonus, its scale, and what was paid so far.

    Args:
        bonus: The intrinsic reward.
        beta: Size of the bonus beside the task's reward, or a ``BonusScale`` for schedules and for
            the raw bonus.
        ends_at: The bonus of a transition looks at the window that ends at ``"next"``, the
            observation it led to, or (the paper) at ``"observation"``, which it came from.
        stride: Steps between two of a window, whose actions are summed.
        view: What the bonus sees of an observation: a key of a Dict or several, indices or a slice
            of a flat Box. Everything when left out.
        encoder: Turns a batch of observations into features ``(N, D)``; needed for images.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if "key" in kwargs:
            raise TypeError(f"there is no key= here: use view={kwargs['key']!r}.")
        if "normalize" in kwargs:
            raise TypeError(
                "there is no normalize= here; the size of the bonus is beta=. What it sees is "
                "normalized by itself, MIMEx(normalize=True); what the agent sees, by a wrapper of "
                "the environments (VecNormalize, NormalizeObservation). Leave it out."
            )
        return super().__new__(cls)

    def __init__(
        self,
        bonus: IntrinsicReward,
        *,
        beta: float | BonusScale = BETA,
        ends_at: EndsAt = "next",
        stride: int = 1,
        view: View = None,
        encoder: Encoder | None = None,
    ) -> None:
        require_choice(EndsAt, ends_at=ends_at)
        require_positive(stride=stride)
        self.bonus: IntrinsicReward = bonus
        self.scale = beta if isinstance(beta, BonusScale) else BonusScale(beta)
        self.ends_at, self.stride, self.view, self.encoder = ends_at, stride, view, encoder
        self.metrics: Metrics = {}  # of the newest learning step
        self.report: Metrics = {}  # averages over the last call of combine and, fading, before it
        # Fading sums over steps: their number, raw bonus, size of the task's reward, bonus.
        self._recent = dict.fromkeys(("steps", "raw", "extrinsic", "intrinsic"), 0.0)
        self.paid = {"extrinsic": 0.0, "intrinsic": 0.0}  # sums of absolute rewards so far

    def readers(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
    ) -> tuple[SpaceReader, SpaceReader | None]:
        """What makes rows of observations and, if the bonus wants them, of actions."""
        read = SpaceReader(observation_space, view=self.view, encoder=self.encoder)
        read_action = action_reader(self.bonus, action_space, self.stride)
        if getattr(self.bonus, "discrete_obs", False) is None:
            learner: Any = self.bonus
            learner.discrete_obs = self.encoder is None and all_discrete(read.space)
        return read, read_action

    @unchanged_if_refused("scale")
    def combine(self, extrinsic: Array, raw: Tensor, real: Tensor | None = None) -> Rewards:
        """Adds the raw bonus to the rewards, each ``(M, N)`` of some steps or ``(N,)`` of a batch.

        Args:
            extrinsic: Of the task.
            raw: As the bonus scored.
            real: ``(M, N)`` bool: False for steps that only reset (Gymnasium's NEXT_STEP). They
                are paid nothing, and enter neither averages nor schedules.
        """
        raw = torch.as_tensor(raw)
        real = None if real is None else torch.as_tensor(real)
        if real is not None and (real.shape != raw.shape or real.dtype != torch.bool):
            raise ValueError(
                f"real is {real.dtype} of shape {tuple(real.shape)}; expected bool of "
                f"{tuple(raw.shape)}, as the bonus."
            )
        if real is None or bool(real.all()):
            rewards = self.scale.combine(extrinsic, raw)
        else:
            extrinsic = torch.as_tensor(extrinsic)
            steps = [
                self.scale.combine(*(part[counts] for part in parts))
                for *parts, counts in zip(extrinsic, raw, real, strict=True)
            ]
            intrinsic = torch.zeros_like(raw)
            intrinsic[real] = torch.cat([step.intrinsic for step in steps])
            rewards = Rewards(extrinsic + intrinsic, extrinsic, intrinsic)
        self.paid["extrinsic"] += float(rewards.extrinsic.abs().sum())
        self.paid["intrinsic"] += float(rewards.intrinsic.abs().sum())
        counted = torch.ones_like(raw, dtype=torch.bool) if real is None else real
        if bool(counted.any()):
            parts = raw[counted], rewards.extrinsic[counted].abs(), rewards.intrinsic[counted]
            self._take_in(len(raw) if raw.ndim == 2 else 1, *(float(p.mean()) for p in parts))
        return rewards

    def _take_in(self, steps: int, raw: float, extrinsic: float, intrinsic: float) -> None:
        """Updates the report by the averages over some steps; half-life as of the scale."""
        keep = 0.5 ** (steps / HALF_LIFE)
        new = {"steps": 1.0, "raw": raw, "extrinsic": extrinsic, "intrinsic": intrinsic}
        self._recent = {name: keep * old + steps * new[name] for name, old in self._recent.items()}
        means = {
            name: torch.tensor(total / self._recent["steps"], dtype=torch.float64)
            for name, total in self._recent.items()
        }
        outer, inner = means["extrinsic"], means["intrinsic"]
        self.report = self.scale.metrics(means["raw"], Rewards(outer + inner, outer, inner))

    def state_dict(self) -> dict[str, Any]:
        """The bonus, its scale and what was paid."""
        return {
            "bonus": self.bonus.state_dict(),
            "scale": self.scale.state_dict(),
            "paid": dict(self.paid),
            "recent": dict(self._recent),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        try:
            paid = {name: float(state.get("paid", self.paid)[name]) for name in self.paid}
            recent = state.get("recent", dict.fromkeys(self._recent, 0.0))
            recent = {name: float(recent[name]) for name in self._recent}
            copy.deepcopy(self.scale).load_state_dict(state["scale"])  # refused before we change
            self.bonus.load_state_dict(state["bonus"])
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no state of a {type(self).__name__}: {error!r}.") from error
        self.scale.load_state_dict(state["scale"])
        self.paid, self._recent = paid, recent


def require_learn_every(learn_every: float, remedy: str = "") -> None:
    """Refuses what is no number of transitions or batches."""
    if not 1 <= learn_every < math.inf:
        raise ValueError(f"learn_every={learn_every} must be at least 1{remedy}.")
