import math

import pytest
import torch
from torch.distributions import Normal

from mimex.agents.surrogate import log_density, surrogate


def textbook(mean, log_std, actions, log_probs, advantages, clip):
    ratio = (Normal(mean, log_std.exp()).log_prob(actions).sum(1) - log_probs).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return torch.minimum(advantages * ratio, advantages * clipped).sum(), ratio


@pytest.fixture
def batch():
    torch.manual_seed(0)
    mean = torch.randn(500, 3, dtype=torch.float64, requires_grad=True)
    log_std = (torch.randn(3, dtype=torch.float64) * 0.3).requires_grad_()
    actions = mean.detach() + 0.5 * torch.randn(500, 3, dtype=torch.float64)
    before = Normal(mean.detach(), log_std.detach().exp()).log_prob(actions).sum(1)
    log_probs = before + 0.3 * torch.randn(500, dtype=torch.float64)  # so that many are clipped
    return mean, log_std, actions, log_probs, torch.randn(500, dtype=torch.float64), 0.1


def test_the_density_is_that_of_a_normal():
    noise, log_std = torch.tensor([[1.0, -2.0]]), torch.tensor([0.5, -1.0])
    expected = -0.5 * (1 + 4) - (0.5 - 1.0) - math.log(2 * math.pi)
    assert float(log_density(noise, log_std)) == pytest.approx(expected)


def test_value_and_gradients_are_the_textbooks(batch):
    ours, statistics = surrogate(*batch)
    theirs, ratio = textbook(*batch)
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(
        torch.autograd.grad(ours, batch[:2]), torch.autograd.grad(theirs, batch[:2]), strict=True
    ):
        torch.testing.assert_close(mine, other)
    outside = ((ratio < 0.9) | (ratio > 1.1)).sum()
    assert 100 < int(outside) < 450  # both cases are in the batch
    assert float(statistics[1]) == float(outside)
    torch.testing.assert_close(statistics[0], (ratio - 1 - ratio.log()).sum())


def test_a_step_that_the_clip_holds_pulls_no_more():
    mean = torch.zeros(2, 1, requires_grad=True)
    # Both densities are above those then by far more than the clip; one step was good, one bad.
    log_probs = torch.full((2,), -5.0)
    gain, _ = surrogate(
        mean, torch.zeros(1), torch.ones(2, 1), log_probs, torch.tensor([1.0, -1.0]), 0.1
    )
    (gradient,) = torch.autograd.grad(gain, mean)
    assert gradient[0] == 0
    assert gradient[1] < 0
