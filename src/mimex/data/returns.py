"""Returns and advantages of on-policy rollouts."""

from __future__ import annotations

import torch
from torch import Tensor


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
