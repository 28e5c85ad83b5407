"""What is drawn from a replay buffer: indices, whose observations are gathered when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Observations:
    """Stacked observations as rows of a ring of single ones: gathered when asked for.

    Attributes:
        ring: ``(R, ...)`` single observations: frames ``(R, C, H, W)`` or vectors ``(R, D)``.
        rows: ``(B, K)`` rows of each stack, oldest first.
        device: Where what is gathered is put.
    """

    ring: Tensor
    rows: Tensor
    device: torch.device

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some: slice | Tensor) -> Tensor:
        """Some stacks, ``(b, K * C, H, W)`` or ``(b, K * D)``: frames one behind the other."""
        rows = self.rows[some]
        count, stack = rows.shape
        gathered = self.ring.index_select(0, rows.flatten())
        stacks = gathered.view(count, stack * self.ring.shape[1], *self.ring.shape[2:])
        return stacks.to(self.device)


class Windows(NamedTuple):
    """The windows of sampled transitions: B windows of L observations, oldest first.

    Every observation is there once: those of the transitions are not repeated among ``others``.
    """

    others: Observations  # (U)
    owners: Tensor  # (U,) the first transition of the run that each belongs to
    places: Tensor  # (B, L) among the observations of the transitions, and the others after them
    valid: Tensor  # (B, L) bool
    actions: Tensor  # (B, L, A): the action that led to each observation


class Transitions(NamedTuple):
    """Sampled transitions of up to n steps."""

    observations: Observations  # (B)
    actions: Tensor  # (B, A)
    rewards: Tensor  # (B,) discounted sums over the n steps
    weights: Tensor  # (B,) the same sums of a reward of 1 for each step
    discounts: Tensor  # (B,) of the value of what they led to; 0 where the episode terminated
    next_observations: Observations  # (B)
    windows: Windows | None
    run: int  # transitions that follow each other in time, from one multiple of this to the next

    def arrays(self) -> dict[str, Tensor]:
        """By name, observations put together, to look at when something went wrong."""
        return {
            "observations": self.observations[:],
            "actions": self.actions,
            "rewards": self.rewards,
            "discounts": self.discounts,
            "next_observations": self.next_observations[:],
        }
