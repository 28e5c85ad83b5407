"""Returns: advantages of a rollout, the batch that PPO learns from, and the scale of a critic.

A critic learns in the scale of the returns (``ReturnScale``), so that the size of rewards does not
matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mimex.bonus.state import require_same
from mimex.data.rollout import Stored
from mimex.nn import processes

FOLLOWS = 0.05
"""Weight of the newest rollout in the statistics once there are many: half of what they are is of
the last 14. Returns grow a hundredfold while a task is learned; an average over all of them would
lag behind."""

FLAT = 1e-3
"""The deviation counts as at least this share of the mean: returns that are all alike have no scale
of their own beside rounding."""


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    *,
    terminated: Tensor,
    ended: Tensor,
    discount: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates of a rollout of M steps (Schulman et al., 2016).

    An episode that terminates has nothing after it. One that is truncated would have gone on: its
    final observation's value stands for the rest. For a stream that runs across episodes (the
    intrinsic return of RND) nothing terminates, nothing ends, and the next value is that of the
    next episode's first observation.

    Args:
        rewards: ``(M, N)``.
        values: ``(M, N)`` of the observations on which the policy acted.
        next_values: ``(M, N)`` of what each step led to: where an episode was truncated, of its
            final observation.
        terminated: ``(M, N)`` bool: the step ended the episode for good; its next value is ignored.
        ended: ``(M, N)`` bool: the step was the last of its episode, for whichever reason.
        discount: Gamma.
        gae_lambda: Lambda.

    Returns:
        Advantages and returns (advantages plus values), ``(M, N)`` each.
    """
    for name, array in (
        ("values", values),
        ("next_values", next_values),
        ("terminated", terminated),
        ("ended", ended),
    ):
        if array.shape != rewards.shape:
            raise ValueError(
                f"{name} has shape {tuple(array.shape)}; expected that of rewards, "
                f"{tuple(rewards.shape)}: (M, N)."
            )
    td_error = rewards + discount * next_values * ~terminated - values
    carried = discount * gae_lambda * (~ended).to(rewards.dtype)
    advantages = torch.empty_like(td_error)
    advantages[-1] = td_error[-1]
    for t in range(len(rewards) - 2, -1, -1):
        torch.addcmul(td_error[t], carried[t], advantages[t + 1], out=advantages[t])
    return advantages, advantages + values


class Batch(NamedTuple):
    """What one update learns from: B steps in any order, H value heads."""

    observations: Stored  # (B, ...) by part
    actions: Tensor  # (B, A)
    log_probs: Tensor  # (B,)
    advantages: Tensor  # (B, H)
    values: Tensor  # (B, H)
    returns: Tensor  # (B, H)

    def arrays(self) -> dict[str, object]:
        """By name, to look at when something went wrong."""
        return self._asdict()

    def rows(self, index: Tensor) -> Batch:
        """Some of the steps."""
        chosen = {part: v.index_select(0, index) for part, v in self.observations.items()}
        return Batch(chosen, *(array.index_select(0, index) for array in self[1:]))


class ReturnScale:
    """Mean and deviation of returns, by value head, that follow them (PopArt).

    A critic's output y stands for the value ``mean + std * y``. When the statistics move, its last
    layer is rescaled so that all values stay what they were (van Hasselt et al., 2016). Before the
    first update every value is 0, whatever the critic says: it knows nothing of the scale.

    Args:
        heads: H.
        follow: Without it the mean stays 0 and the deviation 1: outputs are values.
        device: Where returns are.
    """

    def __init__(
        self, heads: int, *, follow: bool = True, device: torch.device | str = "cpu"
    ) -> None:
        self.follow, self.updates = follow, 0
        self.mean = torch.zeros(heads, dtype=torch.float64, device=device)
        self.var = torch.full_like(self.mean, 0.0 if follow else 1.0)

    @property
    def std(self) -> Tensor:
        """The deviation of each head's returns, ``(H,)``; 0 before the first update."""
        return self.var.sqrt().maximum(FLAT * self.mean.abs())

    def values(self, outputs: Tensor) -> Tensor:
        """Values ``(..., H)`` that a critic's outputs stand for."""
        return self.mean.to(outputs) + self.std.to(outputs) * outputs

    def targets(self, returns: Tensor) -> Tensor:
        """Outputs ``(..., H)`` that stand for returns."""
        return (returns - self.mean.to(returns)) / _or_one(self.std).to(returns)

    def combined(
        self, advantages: Tensor, weights: Sequence[float] = (), *, apart: bool = True
    ) -> Tensor:
        """Advantages ``(B, H)`` of all heads, weighed and added: ``(B,)``.

        Args:
            advantages: In units of reward.
            weights: Of each head; all 1 by default.
            apart: Whether each head's are taken in the unit of its own returns, or all as they are.
        """
        chosen = torch.tensor(list(weights) or [1.0] * len(self.mean))
        units = _or_one(self.std) if apart else torch.ones_like(self.std)
        return advantages @ (chosen.to(units) / units).to(advantages)

    @torch.no_grad()
    def update(self, returns: Tensor, last: nn.Linear) -> None:
        """Takes in returns ``(B, H)``, and keeps the values of a critic by its last layer."""
        if not self.follow:
            return
        self.updates += 1
        rate = max(FOLLOWS, 1 / self.updates)
        before_mean, before_std = self.mean, self.std
        var, mean = torch.var_mean(returns.double(), dim=0, correction=0)
        delta = mean - self.mean
        self.mean = self.mean + rate * delta
        self.var = (1 - rate) * (self.var + rate * delta.square()) + rate * var
        if self.updates > 1:
            std = _or_one(self.std)
            last.weight.mul_((before_std / std).to(last.weight)[:, None])
            kept = (before_std * last.bias + before_mean - self.mean) / std
            last.bias.copy_(kept.to(last.bias))

    def state_dict(self) -> dict[str, Any]:
        """The statistics."""
        return {"mean": self.mean.clone(), "var": self.var.clone(), "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        ours = {"mean": self.mean, "var": self.var}
        require_same(ours, {name: state[name] for name in ours}, "this scale of returns")
        self.mean, self.var = (state[name].to(self.mean, copy=True) for name in ours)
        self.updates = int(state["updates"])


def _or_one(std: Tensor) -> Tensor:
    return torch.where(std > 0, std, 1.0)


def standardised(advantages: Tensor) -> Tensor:
    """Advantages with mean 0 and deviation 1 over all processes; 0 where all are alike."""
    std, mean = torch.std_mean(processes.joined(advantages), correction=0)
    return (advantages - mean) / torch.where(std > 0, std, 1.0)


def explained_variance(values: Tensor, returns: Tensor) -> list[float]:
    """How much of the returns' variance the values ``(B, H)`` explain, by head; at most 1."""
    left, all_of_it = ((returns - values).var(0), returns.var(0))
    return torch.where(all_of_it > 0, 1 - left / all_of_it, 0.0).tolist()
