import pytest
import torch
from torch import nn

from mimex.agents.returns import EMA_RATE, ReturnScale, gae, normalize_advantages

T, F = True, False


def column(*numbers):
    return torch.tensor(numbers).unsqueeze(1)


def test_advantages_of_three_steps_are_those_computed_by_hand():
    advantages, returns = gae(
        column(1.0, 2.0, 3.0),
        column(10.0, 20.0, 30.0),
        column(20.0, 30.0, 40.0),
        terminated=column(F, F, F),
        ended=column(F, F, F),
        discount=0.5,
        gae_lambda=0.5,
    )
    # errors: 1 + 10 - 10 = 1; 2 + 15 - 20 = -3; 3 + 20 - 30 = -7, carried on by 0.25
    expected = column(1 + 0.25 * (-3 + 0.25 * -7), -3 + 0.25 * -7, -7.0)
    torch.testing.assert_close(advantages, expected)
    torch.testing.assert_close(returns, expected + column(10.0, 20.0, 30.0))


def test_a_terminated_episode_has_nothing_after_it():
    advantages, _ = gae(
        column(1.0, 2.0),
        column(10.0, 20.0),
        column(1e6, 40.0),
        terminated=column(T, F),
        ended=column(T, F),
        discount=0.5,
        gae_lambda=1.0,
    )
    torch.testing.assert_close(advantages, column(1 - 10.0, 2 + 20 - 20.0))


def test_a_truncated_episode_is_worth_its_final_observation_and_carries_nothing_back():
    advantages, _ = gae(
        column(1.0, 2.0),
        column(10.0, 20.0),
        column(60.0, 40.0),  # 60: of the final observation, not of the next episode's first
        terminated=column(F, F),
        ended=column(T, F),
        discount=0.5,
        gae_lambda=1.0,
    )
    torch.testing.assert_close(advantages, column(1 + 30 - 10.0, 2 + 20 - 20.0))


def test_environments_do_not_mix():
    rewards, values = torch.randn(6, 3), torch.randn(6, 3)
    after, ended = torch.randn(6, 3), torch.rand(6, 3) < 0.3
    together, _ = gae(
        rewards, values, after, terminated=ended, ended=ended, discount=0.9, gae_lambda=0.8
    )
    alone, _ = gae(
        rewards[:, 1:2],
        values[:, 1:2],
        after[:, 1:2],
        terminated=ended[:, 1:2],
        ended=ended[:, 1:2],
        discount=0.9,
        gae_lambda=0.8,
    )
    torch.testing.assert_close(together[:, 1:2], alone)


def test_a_wrong_shape_is_named():
    grid, flat = torch.zeros(2, 3), torch.zeros(6)
    with pytest.raises(ValueError, match=r"next_values has shape \(6,\)"):
        gae(grid, grid, flat, terminated=grid.bool(), ended=grid.bool(), discount=1, gae_lambda=1)


def critic(heads=1):
    torch.manual_seed(0)
    return nn.Linear(3, heads)


def test_values_stay_what_they_were_when_the_statistics_move():
    scale, last, inputs = ReturnScale(2), critic(2), torch.randn(64, 3)
    scale.update(5 + 2 * torch.randn(100, 2), last)
    before = scale.values(last(inputs))
    scale.update(torch.tensor([400.0, -3.0]) + 70 * torch.randn(100, 2), last)
    torch.testing.assert_close(scale.values(last(inputs)), before, rtol=1e-4, atol=1e-4)


def test_targets_are_what_values_undoes():
    scale, returns = ReturnScale(1), 30 + 4 * torch.randn(100, 1)
    scale.update(returns, critic())
    targets = scale.targets(returns)
    assert targets.mean().item() == pytest.approx(0, abs=1e-5)
    assert targets.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(scale.values(targets), returns)


def test_before_anything_was_seen_every_value_is_nothing():
    assert ReturnScale(1).values(torch.randn(5, 1)).tolist() == [[0.0]] * 5


def test_statistics_follow_returns_that_grow():
    scale, last = ReturnScale(1), critic()
    for _ in range(50):
        scale.update(torch.tensor([[-1.0], [1.0]]), last)
    for _ in range(50):
        scale.update(torch.tensor([[999.0], [1001.0]]), last)
    left = (1 - EMA_RATE) ** 50
    assert scale.mean.item() == pytest.approx(1000 * (1 - left))
    # What is left of the first mean's distance counts as spread.
    assert scale.var.item() == pytest.approx(1 + 1e6 * left * (1 - left), rel=1e-6)


@pytest.mark.parametrize("constant", [0.0, 7.0, -1e-6])
def test_returns_that_are_all_alike_give_finite_targets(constant):
    scale, last = ReturnScale(1), critic()
    for _ in range(3):
        scale.update(torch.full((8, 1), constant), last)
        assert scale.targets(torch.full((8, 1), constant)).abs().max() < 1e-3
    assert all(p.isfinite().all() for p in last.parameters())


def test_without_following_outputs_are_values():
    scale, last, outputs = ReturnScale(1, follow=False), critic(), torch.randn(5, 1)
    weights = last.weight.clone()
    scale.update(100 * torch.randn(9, 1), last)
    assert torch.equal(scale.values(outputs), outputs)
    assert torch.equal(scale.targets(outputs), outputs)
    assert torch.equal(last.weight, weights)


def test_a_saved_scale_goes_on_exactly_and_another_is_refused():
    one, other = ReturnScale(2), ReturnScale(2)
    one.update(torch.randn(9, 2), critic(2))
    other.load_state_dict(one.state_dict())
    for scale in (one, other):
        scale.update(torch.ones(4, 2), critic(2))
    assert torch.equal(one.mean, other.mean)
    assert torch.equal(one.var, other.var)
    with pytest.raises(ValueError, match="mean has shape"):
        ReturnScale(1).load_state_dict(one.state_dict())


def test_two_groups_of_advantages_are_normalized_separately():
    advantages = torch.tensor([1.0, 3.0, 100.0, 300.0])
    groups = torch.tensor([False, False, True, True])
    assert normalize_advantages(advantages, groups).tolist() == [-1.0, 1.0, -1.0, 1.0]
    together = normalize_advantages(advantages)
    assert together[:2].abs().max() < 0.9
    torch.testing.assert_close(normalize_advantages(advantages, torch.ones(4) > 0), together)
