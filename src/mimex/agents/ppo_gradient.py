"""The derivatives of PPO's loss, written out by hand.

Automatic differentiation gives the same (tests/agents/test_ppo_gradient.py), but Python then holds
its lock between any two of some hundred small operations, and threads that learn side by side wait
for one another longer than they work. As TorchScript all of a chunk is one call without the lock.
"""

import math

import torch
from torch import Tensor

from mimex.nn import selu
from mimex.nn.parallel import without_lock

STATISTICS = ("policy_loss", "value_loss", "divergence", "clipped")

_outputs, _derivatives = without_lock(selu.outputs), without_lock(selu.derivatives)


def _gradients(
    inputs: Tensor,
    rows: Tensor,
    actions: Tensor,
    log_probs: Tensor,
    advantages: Tensor,
    values: Tensor,
    returns: Tensor,
    log_std: Tensor,
    actor: list[Tensor],
    critic: list[Tensor],
    share: float,
    clip: float,
    value_clip: float,
    value_weight: float,
    entropy_weight: float,
    of_input: bool,
    half_log_two_pi: float = 0.5 * math.log(2 * math.pi),
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives of a chunk's loss, and its statistics.

    Args:
        inputs: Of actor and critic, ``(B, D)``.
        rows: Which of the steps below the chunk is, ``(B,)``.
        actions: Taken, ``(N, A)``.
        log_probs: Their log-densities then, ``(N,)``.
        advantages: Of the actions, ``(N,)``.
        values: The critic's then, ``(N, H)``.
        returns: What it should say, ``(N, H)``.
        log_std: Of the policy, ``(A,)``.
        actor: Weights and biases in turn.
        critic: Weights and biases in turn.
        share: What a step weighs in the minibatch.
        clip: How far the probability of an action may move, as a share.
        value_clip: How far a value may move; infinite for no limit.
        value_weight: Weight of the critic's loss.
        entropy_weight: Weight of the policy's entropy.
        of_input: Whether the derivative by the inputs is wanted.
        half_log_two_pi: A constant of the normal density.

    Returns:
        Derivatives by the parameters of the actor, those of the critic and the log-std, in one row;
        derivatives by the inputs where wanted, else an empty tensor; and sums over the steps of
        ``STATISTICS``, times ``share``, ``(4,)``.
    """
    passed = _outputs(inputs, actor)
    std = log_std.exp()
    noise = actions.index_select(0, rows).sub_(passed[-1]).div_(std)
    squares = noise.square()
    log_ratio = squares.sum(1).mul_(-0.5).sub_(log_probs.index_select(0, rows))
    log_ratio.sub_(log_std.sum() + half_log_two_pi * actions.size(1))
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    chosen = advantages.index_select(0, rows)
    plain = chosen * ratio
    gain = torch.minimum(plain, chosen * clipped)
    # Beyond the clip the gain is flat; else its derivative by the log-density is itself.
    slope = torch.where(plain == gain, plain, torch.zeros_like(plain)).mul_(-share).unsqueeze(1)
    entropy_slope = entropy_weight * share * rows.size(0)
    of_log_std = (squares.sub_(1).mul_(slope)).sum(0).sub_(entropy_slope)
    of_actor = _derivatives(noise.div_(std).mul_(slope), passed, actor, of_input)

    passed = _outputs(inputs, critic)
    wanted, before = returns.index_select(0, rows), values.index_select(0, rows)
    error = passed[-1] - wanted
    square = error.square()
    moved = (passed[-1] - before).clamp_(-value_clip, value_clip)
    held = before.add_(moved).sub_(wanted).square_()
    learns = (square >= held).logical_or_(moved.abs() < value_clip)
    worst = torch.maximum(square, held)
    of_value = torch.where(learns, error, torch.zeros_like(error)).mul_(2 * value_weight * share)
    of_critic = _derivatives(of_value, passed, critic, of_input)

    statistics = torch.stack(
        [
            -gain.sum(),
            worst.sum(),
            (ratio - 1 - log_ratio).sum(),
            (ratio != clipped).sum().to(gain.dtype),
        ]
    )
    of_inputs = of_actor.pop().add_(of_critic.pop()) if of_input else torch.empty(0)
    by_parameters = [part.flatten() for part in of_actor + of_critic]
    by_parameters.append(of_log_std)
    return torch.cat(by_parameters), of_inputs, statistics.mul_(share)


gradients = without_lock(_gradients)
