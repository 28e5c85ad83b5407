"""What PPO learns from: a rollout with its values, advantages and returns, flat."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from mimex.bonus.scale import Rewards
from mimex.data.returns import gae
from mimex.data.rollout import Rollout, Stored

if TYPE_CHECKING:
    from mimex.agents.ppo import PPO


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


def make_batch(agent: PPO, rollout: Rollout, rewards: Rewards, beta: float) -> Batch:
    """Values, advantages and returns of a rollout, flat and ready to learn from.

    With one head both rewards are one stream, whose episodes end. With two the bonus, without its
    weight beta, has its own, which runs on across episodes; what is paid for living on is the
    task's, or it would not make a difference there.
    """
    settings, ended = agent.settings, rollout.ended
    flat = {part: values.flatten(0, 1) for part, values in rollout.observations.items()}
    values = agent.values(flat).view(rollout.steps + 1, rollout.num_envs, agent.heads)
    now, after = values[:-1], values[1:].clone()
    over_episodes = after[..., -1].clone()
    # What an ended episode's last step led to is its final observation, not the next one's first.
    after[ended] = agent.values(rollout.finals())
    never = torch.zeros_like(ended)
    results = [
        gae(
            rewards.extrinsic + rewards.living if agent.heads == 2 else rewards.total,
            now[..., 0],
            after[..., 0],
            terminated=rollout.terminated,
            ended=ended,
            discount=settings.discount,
            gae_lambda=settings.gae_lambda,
        )
    ]
    if agent.heads == 2:
        novelty = rewards.intrinsic - rewards.living
        results.append(
            gae(
                novelty / beta if beta else torch.zeros_like(novelty),
                now[..., 1],
                over_episodes,
                terminated=never,
                ended=never,
                discount=settings.intrinsic_discount,
                gae_lambda=settings.gae_lambda,
            )
        )
    advantages, returns = (torch.stack(streams, dim=-1) for streams in zip(*results, strict=True))
    return Batch(
        {part: values[:-1].flatten(0, 1) for part, values in rollout.observations.items()},
        rollout.actions.flatten(0, 1),
        rollout.log_probs.flatten(),
        advantages.flatten(0, 1),
        now.flatten(0, 1),
        returns.flatten(0, 1),
    )
