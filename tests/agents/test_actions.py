"""What environments get, and policies against PyTorch's own distributions."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Generator, distributions

from mimex.agents.actions import ActionAdapter, Categorical, Gaussian


def test_actions_reach_the_tasks_own_bounds_and_no_further():
    low, high = np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32)
    writer = ActionAdapter(spaces.Box(low, high))
    acted = writer(torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5], [7.0, -7.0]]))
    np.testing.assert_allclose(acted, [[-2, 0], [2, 10], [0, 7.5], [2, 0]])
    assert acted.dtype == np.float32
    # In the agent's units they are clipped, and no more.
    assert writer.clipped(torch.tensor([[0.5, -7.0]])).tolist() == [[0.5, -1.0]]


def test_actions_without_bounds_go_as_they_are():
    writer = ActionAdapter(spaces.Box(-np.inf, np.inf, (1,)))
    assert writer(torch.tensor([[70.0]])).tolist() == [[70.0]]
    assert writer.clipped(torch.tensor([[70.0]])).tolist() == [[70.0]]


def test_discrete_actions_are_one_hot_to_the_agent():
    writer = ActionAdapter(spaces.Discrete(3, start=-1))
    assert (writer.size, writer.discrete) == (3, True)
    codes = torch.nn.functional.one_hot(torch.tensor([0, 2])).float()
    assert writer(codes).tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("space", "sizes", "first", "last"),
    [
        (spaces.MultiDiscrete([2, 3], start=[5, -1]), (2, 3), [5, -1], [6, 1]),
        (spaces.MultiDiscrete([[2], [3]]), (2, 3), [[0], [0]], [[1], [2]]),
        (spaces.MultiBinary(2), (2, 2), [0, 0], [1, 1]),
    ],
)
def test_several_discrete_actions_are_one_hot_codes_one_after_the_other(space, sizes, first, last):
    writer = ActionAdapter(space)
    assert (writer.sizes, writer.size, writer.discrete) == (sizes, sum(sizes), True)
    ends = torch.zeros(2, writer.size)
    for start, size in zip((0, sizes[0]), sizes, strict=True):
        ends[0, start] = ends[1, start + size - 1] = 1
    acted = writer(ends)
    assert acted.tolist() == [first, last]
    assert all(space.contains(action) for action in acted)


def test_other_action_spaces_are_refused_with_a_remedy_that_works():
    env = gymnasium.make("tests.tasks:DictAction-v0")
    with pytest.raises(ValueError, match=r"gymnasium\.wrappers\.TransformAction"):
        ActionAdapter(env.action_space)
    single = spaces.Box(np.float32(-2), np.float32(3), (1,))
    wrapped = gymnasium.wrappers.TransformAction(env, lambda a: {"move": a}, single)
    wrapped.reset(seed=0)
    (action,) = ActionAdapter(wrapped.action_space)(torch.ones(1, 1))
    assert wrapped.step(action)[1] == pytest.approx(0.3)


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
    ours, outputs = Categorical([4]), torch.randn(7, 4)
    theirs = distributions.Categorical(logits=outputs)
    drawn = ours.sample(outputs, Generator().manual_seed(0))
    assert drawn.sum(1).tolist() == [1.0] * 7
    expected = theirs.log_prob(drawn.argmax(1))
    torch.testing.assert_close(ours.log_prob(outputs, drawn), expected)
    torch.testing.assert_close(ours.entropy(outputs), theirs.entropy())
    assert torch.equal(ours.mode(outputs).argmax(1), outputs.argmax(1))


def test_several_choices_are_independent_categoricals():
    sizes, outputs = [2, 3], torch.randn(7, 5)
    ours, theirs = (
        Categorical(sizes),
        [distributions.Categorical(logits=logits) for logits in outputs.split(sizes, 1)],
    )
    drawn = ours.sample(outputs, Generator().manual_seed(0))
    codes = drawn.split(sizes, 1)
    assert all(code.sum(1).tolist() == [1.0] * 7 for code in codes)
    logs = [each.log_prob(code.argmax(1)) for each, code in zip(theirs, codes, strict=True)]
    torch.testing.assert_close(ours.log_prob(outputs, drawn), sum(logs))
    torch.testing.assert_close(ours.entropy(outputs), sum(each.entropy() for each in theirs))
    likeliest = [logits.argmax(1).tolist() for logits in outputs.split(sizes, 1)]
    assert [c.argmax(1).tolist() for c in ours.mode(outputs).split(sizes, 1)] == likeliest


def test_codes_are_drawn_as_often_as_they_are_likely():
    outputs = torch.tensor([[0.5, 0.3, 0.2]]).log().expand(20_000, 3)
    share = Categorical([3]).sample(outputs, Generator().manual_seed(0)).mean(0)
    assert share.tolist() == pytest.approx([0.5, 0.3, 0.2], abs=0.015)


def test_the_deviation_comes_back_to_its_floor():
    policy = Gaussian(2, initial_std=1.0, min_std=0.4)
    with torch.no_grad():
        policy.log_std.fill_(-5.0)
    policy.keep_floor()
    assert policy.log_std.exp().tolist() == pytest.approx([0.4, 0.4])
