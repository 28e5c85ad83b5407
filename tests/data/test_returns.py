import pytest
import torch

from mimex.data.returns import gae

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
