"""Generalized advantage estimation, batches, and normalization of returns (PopArt)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mimex.data.rollout import ObsDict
from mimex.nn import processes
from mimex.nn.state import require_same

EMA_RATE = 0.05
"""EMA rate of the statistics, per rollout: a half-life of 14. Returns grow a hundredfold while a
task is learned; an average over all rollouts would lag behind."""

FLAT = 1e-3
"""Lower bound of the std, as a fraction of the mean: that of constant returns is rounding error."""


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
    """Generalized advantage estimation over M steps of N environments (Schulman et al., 2016).

    On truncation, bootstrap from V(final_obs). For a non-episodic return (the intrinsic return of
    RND), ``terminated`` and ``ended`` are all False, and the next value is that of the next
    episode's first observation.

    Args:
        rewards: ``(M, N)``.
        values: ``(M, N)`` of the observations on which the policy acted.
        next_values: ``(M, N)`` of the next observations; on truncation, of the final observation.
        terminated: ``(M, N)`` bool: the episode terminated; the next value is ignored.
        ended: ``(M, N)`` bool: the episode terminated or was truncated.
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
    """Training data of one update: B steps in any order, with H value heads."""

    observations: ObsDict  # (B, ...) by part
    actions: Tensor  # (B, A)
    log_probs: Tensor  # (B,)
    advantages: Tensor  # (B, H)
    values: Tensor  # (B, H)
    returns: Tensor  # (B, H)

    def arrays(self) -> dict[str, object]:
        """The arrays by name, for debugging."""
        return self._asdict()

    def rows(self, rows: Tensor | slice) -> Batch:
        """Selects steps."""
        chosen = {part: v[rows] for part, v in self.observations.items()}
        return Batch(chosen, *(array[rows] for array in self[1:]))


class ReturnScale:
    """Running mean and std of the returns of each value head (PopArt, van Hasselt et al. 2016).

    The critic's output y is the value ``mean + std * y``. When the statistics change, the critic's
    last layer is rescaled so that all values stay the same. Before the first update every value is
    0, because the scale of the returns is unknown.

    Args:
        heads: Number of value heads, H.
        follow: Whether to update the statistics; otherwise the mean stays 0 and the std 1.
        device: Device of the returns.
    """

    def __init__(
        self, heads: int, *, follow: bool = True, device: torch.device | str = "cpu"
    ) -> None:
        self.follow, self.updates = follow, 0
        self.mean = torch.zeros(heads, dtype=torch.float64, device=device)
        self.var = torch.full_like(self.mean, 0.0 if follow else 1.0)

    @property
    def std(self) -> Tensor:
        """Standard deviation of each head's returns, ``(H,)``; 0 before the first update."""
        return self.var.sqrt().maximum(FLAT * self.mean.abs())

    def values(self, outputs: Tensor) -> Tensor:
        """Values ``(..., H)`` of the critic's outputs."""
        return self.mean.to(outputs) + self.std.to(outputs) * outputs

    def targets(self, returns: Tensor) -> Tensor:
        """Normalized returns ``(..., H)``, the critic's targets."""
        return (returns - self.mean.to(returns)) / _or_one(self.std).to(returns)

    def combined(
        self, advantages: Tensor, weights: Sequence[float] = (), *, per_head: bool = True
    ) -> Tensor:
        """Weighted sum over heads of advantages ``(B, H)``: ``(B,)``.

        Args:
            advantages: In units of reward.
            weights: Weight of each head; all 1 by default.
            per_head: Divide each head's advantages by the std of its returns.
        """
        chosen = torch.tensor(list(weights) or [1.0] * len(self.mean))
        units = _or_one(self.std) if per_head else torch.ones_like(self.std)
        return advantages @ (chosen.to(units) / units).to(advantages)

    @torch.no_grad()
    def update(self, returns: Tensor, last: nn.Linear) -> None:
        """Updates the statistics with returns ``(B, H)``, and rescales the critic's last layer."""
        if not self.follow:
            return
        self.updates += 1
        rate = max(EMA_RATE, 1 / self.updates)
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
        """Restores a state of ``state_dict``; if it does not fit, nothing changes."""
        ours = {"mean": self.mean, "var": self.var}
        require_same(ours, {name: state[name] for name in ours}, "these return statistics")
        self.mean, self.var = (state[name].to(self.mean, copy=True) for name in ours)
        self.updates = int(state["updates"])


def _or_one(std: Tensor) -> Tensor:
    return torch.where(std > 0, std, 1.0)


def normalize_advantages(advantages: Tensor, groups: Tensor | None = None) -> Tensor:
    """Advantages with mean 0 and std 1 over all processes; 0 if all are equal.

    Args:
        advantages: ``(B,)``.
        groups: ``(B,)`` bool: normalize those where it is True and the others separately.
    """
    chosen = torch.zeros_like(advantages) if groups is None else groups.to(advantages)
    every, every_chosen = processes.all_gather(advantages), processes.all_gather(chosen)
    normalized = torch.empty_like(advantages)
    for group in (False, True):
        of_group = every[every_chosen == group]
        if len(of_group):
            std, mean = torch.std_mean(of_group, correction=0)
            rows = chosen == group
            normalized[rows] = (advantages[rows] - mean) / torch.where(std > 0, std, 1.0)
    return normalized


def explained_variance(values: Tensor, returns: Tensor) -> list[float]:
    """Explained variance of the returns by the values ``(B, H)``, per head; at most 1."""
    residual, total = (returns - values).var(0), returns.var(0)
    return torch.where(total > 0, 1 - residual / total, 0.0).tolist()
