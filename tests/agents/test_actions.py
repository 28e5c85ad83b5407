"""What environments get, and policies against PyTorch's own distributions."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Generator, distributions

from mimex.agents.actions import ActionWriter, Categorical, Gaussian


def test_actions_reach_the_tasks_own_bounds_and_no_further():
    low, high = np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32)
    writer = ActionWriter(spaces.Box(low, high))
    acted = writer(torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5], [7.0, -7.0]]))
    np.testing.assert_allclose(acted, [[-2, 0], [2, 10], [0, 7.5], [2, 0]])
    assert acted.dtype == np.float32
    # In the agent's units they are clipped, and no more.
    assert writer.clipped(torch.tensor([[0.5, -7.0]])).tolist() == [[0.5, -1.0]]


def test_actions_without_bounds_go_as_they_are():
    writer = ActionWriter(spaces.Box(-np.inf, np.inf, (1,)))
    assert writer(torch.tensor([[70.0]])).tolist() == [[70.0]]
    assert writer.clipped(torch.tensor([[70.0]])).tolist() == [[70.0]]


def test_discrete_actions_are_one_hot_to_the_agent():
    writer = ActionWriter(spaces.Discrete(3, start=-1))
    assert (writer.size, writer.discrete) == (3, True)
    codes = torch.nn.functional.one_hot(torch.tensor([0, 2])).float()
    assert writer(codes).tolist() == [-1, 1]


def test_other_action_spaces_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match="agents take a Box of real numbers or Discrete"):
        ActionWriter(spaces.MultiDiscrete([2, 3]))


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
