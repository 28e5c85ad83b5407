"""Policies against PyTorch's own distributions."""

import pytest
import torch
from torch import Generator, distributions

from mimex.agents.distributions import Categorical, Gaussian


def test_a_gaussian_is_the_textbooks():
    ours = Gaussian(3, initial_std=0.5, min_std=0.0)
    outputs = torch.randn(7, 3)
    theirs = distributions.Normal(outputs, 0.5)
    drawn = ours.sample(outputs, Generator().manual_seed(0))
    torch.testing.assert_close(ours.log_prob(outputs, drawn), theirs.log_prob(drawn).sum(1))
    torch.testing.assert_close(ours.entropy(outputs), theirs.entropy().sum(1))
    assert torch.equal(ours.mode(outputs), outputs)
    assert ours.metrics() == {"ppo/std": pytest.approx(0.5)}


def test_a_categorical_is_the_textbooks():
    ours, outputs = Categorical(), torch.randn(7, 4)
    theirs = distributions.Categorical(logits=outputs)
    drawn = ours.sample(outputs, Generator().manual_seed(0))
    assert drawn.sum(1).tolist() == [1.0] * 7
    expected = theirs.log_prob(drawn.argmax(1))
    torch.testing.assert_close(ours.log_prob(outputs, drawn), expected)
    torch.testing.assert_close(ours.entropy(outputs), theirs.entropy())
    assert torch.equal(ours.mode(outputs).argmax(1), outputs.argmax(1))


def test_codes_are_drawn_as_often_as_they_are_likely():
    outputs = torch.tensor([[0.5, 0.3, 0.2]]).log().expand(20_000, 3)
    share = Categorical().sample(outputs, Generator().manual_seed(0)).mean(0)
    assert share.tolist() == pytest.approx([0.5, 0.3, 0.2], abs=0.015)


def test_the_deviation_comes_back_to_its_floor():
    policy = Gaussian(2, initial_std=1.0, min_std=0.4)
    with torch.no_grad():
        policy.log_std.fill_(-5.0)
    policy.keep_floor()
    assert policy.log_std.exp().tolist() == pytest.approx([0.4, 0.4])
