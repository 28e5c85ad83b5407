"""The base class of all adapters: a bonus, its scale, and the part of observations it sees."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, TypedDict

import torch
from gymnasium import spaces
from torch import Tensor

from mimex.bonus.base import IntrinsicReward
from mimex.bonus.inputs import Encoder
from mimex.bonus.scale import BETA, HALF_LIFE, BonusScale, Rewards
from mimex.data.checks import require_choice, require_positive
from mimex.data.spaces import View, all_discrete
from mimex.data.windows import EndsAt
from mimex.interop.flatten import SpaceFlattener, action_flattener
from mimex.types import Array, Metrics


class BonusOptions(TypedDict, total=False):
    """Options of all adapters; see ``BonusAdapter``."""

    beta: float | BonusScale
    ends_at: EndsAt
    stride: int
    view: View
    encoder: Encoder | None


class BonusAdapter:
    """A bonus that is scaled and added to extrinsic rewards.

    Attributes:
        metrics: Metrics of the last learning step.
        report: ``bonus/mean``, ``bonus/reward``, ``bonus/share`` and ``bonus/beta``: moving
            averages over recent steps.
        reward_sums: Sums of the absolute extrinsic and intrinsic rewards so far.

    Args:
        bonus: The intrinsic reward.
        beta: Weight of the bonus, or a ``BonusScale`` for schedules and for the raw bonus.
        ends_at: Whether the window of a transition ends at the ``"next"`` observation, or at the
            ``"observation"`` that the policy acted on (the paper).
        stride: Environment steps between consecutive steps of a window; the actions in between are
            summed.
        view: The part of an observation that the bonus sees: a key of a Dict or several, indices or
            a slice of a flat Box. Everything if None.
        encoder: Maps a batch of observations to features ``(N, D)``; required for images.
    """

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
        self.metrics: Metrics = {}
        self.report: Metrics = {}
        # Exponentially weighted sums over steps.
        self._recent = dict.fromkeys(("steps", "raw", "extrinsic", "intrinsic"), 0.0)
        self.reward_sums = {"extrinsic": 0.0, "intrinsic": 0.0}

    def flatteners(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
    ) -> tuple[SpaceFlattener, SpaceFlattener | None]:
        """The flatteners of observations and, if the bonus uses them, of actions."""
        flatten = SpaceFlattener(observation_space, view=self.view, encoder=self.encoder)
        flatten_actions = action_flattener(self.bonus, action_space, self.stride)
        if getattr(self.bonus, "discrete_obs", False) is None:
            learner: Any = self.bonus
            learner.discrete_obs = self.encoder is None and all_discrete(flatten.space)
        return flatten, flatten_actions

    def combine(self, extrinsic: Array, raw: Tensor, real: Tensor | None = None) -> Rewards:
        """Adds the raw bonus to the rewards, each ``(M, N)`` of M steps or ``(N,)`` of a batch.

        Args:
            extrinsic: Extrinsic rewards.
            raw: Raw bonus.
            real: ``(M, N)`` bool: False for steps that only reset (Gymnasium's NEXT_STEP). They
                have no bonus, and do not count in averages and schedules.
        """
        raw = torch.as_tensor(raw)
        real = torch.ones_like(raw, dtype=torch.bool) if real is None else torch.as_tensor(real)
        if real.shape != raw.shape or real.dtype != torch.bool:
            raise ValueError(
                f"real is {real.dtype} of shape {tuple(real.shape)}; expected bool of "
                f"{tuple(raw.shape)}, as the bonus."
            )
        if bool(real.all()):
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
        self.reward_sums["extrinsic"] += float(rewards.extrinsic.abs().sum())
        self.reward_sums["intrinsic"] += float(rewards.intrinsic.abs().sum())
        if bool(real.any()):
            parts = raw[real], rewards.extrinsic[real].abs(), rewards.intrinsic[real]
            self._update_report(len(raw) if raw.ndim == 2 else 1, *(float(p.mean()) for p in parts))
        return rewards

    def _update_report(self, steps: int, raw: float, extrinsic: float, intrinsic: float) -> None:
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
        """The bonus, its scale and the averages."""
        return {
            "bonus": self.bonus.state_dict(),
            "scale": self.scale.state_dict(),
            "reward_sums": dict(self.reward_sums),
            "recent": dict(self._recent),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``; if it does not fit, ValueError, and nothing changes."""
        try:
            sums = {name: float(state["reward_sums"][name]) for name in self.reward_sums}
            recent = {name: float(state["recent"][name]) for name in self._recent}
            copy.deepcopy(self.scale).load_state_dict(state["scale"])  # check before the bonus
            self.bonus.load_state_dict(state["bonus"])
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no state of a {type(self).__name__}: {error!r}.") from error
        self.scale.load_state_dict(state["scale"])
        self.reward_sums, self._recent = sums, recent


def require_learn_every(learn_every: float, remedy: str = "") -> None:
    """Raises ValueError unless ``learn_every`` is a finite number of at least 1."""
    if not 1 <= learn_every < math.inf:
        raise ValueError(f"learn_every={learn_every} must be at least 1{remedy}.")
