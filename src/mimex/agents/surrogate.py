"""PPO's clipped objective of a Gaussian policy, as one operation with its own derivative.

On a thousand rows the twenty small operations it is made of cost more in bookkeeping than in
arithmetic, and threads wait for each other there: PPO's update on two of them is a fifth faster.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def log_density(noise: Tensor, log_std: Tensor) -> Tensor:
    """Log-density ``(B,)`` of actions that are so many standard deviations ``(B, A)`` off."""
    constant = 0.5 * noise.shape[1] * math.log(2 * math.pi)
    return noise.square().sum(1).mul_(-0.5).sub_(log_std.sum() + constant)


def surrogate(
    mean: Tensor,
    log_std: Tensor,
    actions: Tensor,
    log_probs: Tensor,
    advantages: Tensor,
    clip: float,
) -> tuple[Tensor, Tensor]:
    """The sum over steps of ``min(A r, A clip(r))``, r the ratio of new to old densities.

    Args:
        mean: ``(B, A)`` of the policy.
        log_std: ``(A,)`` of the policy.
        actions: ``(B, A)`` that were taken.
        log_probs: ``(B,)`` their log-densities then.
        advantages: ``(B,)``.
        clip: How far r may move from 1.

    Returns:
        The sum, differentiable by ``mean`` and ``log_std``; and ``(2,)`` statistics: the sums of
        the divergence from the policy that acted, and of the steps whose ratio was clipped.
    """
    found: tuple[Tensor, Tensor] = _Surrogate.apply(  # type: ignore[no-untyped-call]
        mean, log_std, actions, log_probs, advantages, clip
    )
    return found


class _Surrogate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        log_std: Tensor,
        actions: Tensor,
        log_probs: Tensor,
        advantages: Tensor,
        clip: float,
    ) -> tuple[Tensor, Tensor]:
        inverse = log_std.neg().exp_()
        noise = (actions - mean).mul_(inverse)
        log_ratio = log_density(noise, log_std).sub_(log_probs)
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - clip, 1 + clip)
        free, held = advantages * ratio, advantages * clipped
        gain = torch.minimum(free, held)
        # The derivative by the log-density: the step's own share, unless the clip holds it.
        ctx.save_for_backward(noise, inverse, free.mul_(free <= held))
        outside = (ratio != clipped).sum()
        statistics = torch.stack([ratio.sub_(1).sub_(log_ratio).sum(), outside])
        ctx.mark_non_differentiable(statistics)
        return gain.sum(), statistics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        noise, inverse, weight = ctx.saved_tensors
        weight = (weight * gradient).unsqueeze(1)
        weighted = noise * weight
        of_log_std = (weighted * noise).sum(0).sub_(weight.sum())
        return weighted.mul_(inverse), of_log_std, None, None, None, None
