import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal

from mimex.agents.ppo_gradient import _gradients, gradients
from mimex.nn.mlp import mlp

SIZE, WIDTH, ACTIONS = 64, 5, 3


def networks(heads):
    torch.manual_seed(0)
    actor = mlp((WIDTH, 8, 6, ACTIONS), activation=nn.SELU, gain=1.0).double()
    critic = mlp((WIDTH, 8, 6, heads), activation=nn.SELU, gain=1.0).double()
    log_std = nn.Parameter(torch.tensor([-0.5, 0.1, 0.3], dtype=torch.float64))
    return actor, critic, log_std


def chunk(actor, log_std, heads):
    """Steps whose densities have moved by about 20 % since they were taken."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs, actions = normal(SIZE, WIDTH), normal(SIZE, ACTIONS)
    with torch.no_grad():
        now = Normal(actor(inputs), log_std.exp()).log_prob(actions).sum(1)
    log_probs = now + 0.2 * normal(SIZE)
    return [inputs, actions, log_probs, normal(SIZE), normal(SIZE, heads), normal(SIZE, heads)]


def by_differentiation(parts, networks_, share, clip, value_clip, value_weight, entropy_weight):
    """The loss as the textbook has it, and PyTorch's derivatives."""
    inputs, actions, log_probs, advantages, values, returns = parts
    actor, critic, log_std = networks_
    inputs = inputs.clone().requires_grad_()
    policy = Normal(actor(inputs), log_std.exp())
    ratio = (policy.log_prob(actions).sum(1) - log_probs).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    gain = torch.minimum(ratio * advantages, clipped * advantages).sum()
    value = critic(inputs)
    held = values + (value - values).clamp(-value_clip, value_clip)
    error = torch.maximum((value - returns).square(), (held - returns).square()).sum()
    entropy = SIZE * policy.entropy()[0].sum()
    loss = share * (value_weight * error - gain - entropy_weight * entropy)
    of = [*actor.parameters(), *critic.parameters(), log_std, inputs]
    log_ratio = ratio.log()
    statistics = [-gain, error, (ratio - 1 - log_ratio).sum(), (ratio != clipped).sum()]
    return torch.autograd.grad(loss, of), [float(s.detach()) * share for s in statistics]


def arguments(parts, actor, critic, log_std):
    """The chunk within more steps, at rows of its own."""
    rows = torch.randperm(2 * SIZE, generator=torch.Generator().manual_seed(2))[:SIZE]
    inputs, *others = parts
    among = [torch.full((2 * SIZE, *other.shape[1:]), math.nan).double() for other in others]
    for large, other in zip(among, others, strict=True):
        large[rows] = other
    networks_ = (log_std, list(actor.parameters()), list(critic.parameters()))
    return (inputs, rows, *among, *networks_)


@pytest.mark.parametrize("written", [gradients, _gradients], ids=["script", "python"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("value_clip", [0.5, math.inf])
@pytest.mark.parametrize("entropy_weight", [0.0, 0.2])
def test_derivatives_are_those_of_the_loss(written, heads, value_clip, entropy_weight):
    actor, critic, log_std = networks(heads)
    parts = chunk(actor, log_std, heads)
    rest = (0.03, 0.2, value_clip, 0.7, entropy_weight)
    expected, statistics = by_differentiation(parts, (actor, critic, log_std), *rest)
    assert 0.1 < statistics[3] / (SIZE * 0.03) < 0.95, "some ratios are clipped and some are not"
    with torch.no_grad():
        found, of_inputs, sums = written(*arguments(parts, actor, critic, log_std), *rest, True)
    *by_parameters, by_inputs = expected
    row = torch.cat([part.flatten() for part in by_parameters])
    torch.testing.assert_close(found, row, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(of_inputs, by_inputs, rtol=1e-9, atol=1e-12)
    assert sums.tolist() == pytest.approx(statistics)


def test_without_the_inputs_the_rest_is_the_same():
    actor, critic, log_std = networks(1)
    rest = (1.0, 0.2, math.inf, 1.0, 0.0)
    given = arguments(chunk(actor, log_std, 1), actor, critic, log_std)
    with torch.no_grad():
        with_inputs, of_inputs, _ = gradients(*given, *rest, True)
        without, nothing, _ = gradients(*given, *rest, False)
    assert torch.equal(without, with_inputs)
    assert (len(of_inputs), len(nothing)) == (SIZE, 0)
