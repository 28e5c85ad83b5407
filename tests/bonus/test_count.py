import pytest
import torch
from tests.states import assert_refused_or_loaded, same

from mimex.bonus.count import Count
from mimex.types import Window


def window(rows):
    """Windows of one step."""
    features = torch.tensor(rows, dtype=torch.float32).unsqueeze(1)
    return Window(features, torch.ones(features.shape[:2], dtype=torch.bool))


def test_the_reward_is_one_over_the_root_of_the_visits():
    bonus = Count(cell=0.5)
    rewards, metrics = bonus.learn(window([[0.1, 0.1], [0.4, 0.2], [0.6, 0.1]]))
    assert rewards.tolist() == [1, 1, 1]  # before any visit was counted
    assert metrics == {"bonus/mean": 1.0, "bonus/cells": 2.0}
    bonus.learn(window([[0.3, 0.3]]))
    scores = bonus.reward(window([[0.0, 0.49], [0.9, 0.0], [-0.1, 0.1]]))
    torch.testing.assert_close(scores, torch.tensor([3 + 1, 1 + 1, 1]).rsqrt())


def test_cells_consist_of_the_selected_features_of_the_newest_step():
    bonus = Count(length=2, features=(1,), cell=1.0)
    steps = torch.tensor([[[9.0, 9.0, 9.0], [0.0, 2.5, 0.0]]])
    bonus.learn(Window(steps, torch.ones(1, 2, dtype=torch.bool)))
    other = torch.tensor([[[0.0, 0.0, 0.0], [7.0, 2.1, 7.0]]])
    assert float(bonus.reward(Window(other, torch.ones(1, 2, dtype=torch.bool)))) < 0.8
    with pytest.raises(ValueError, match=r"features=\(5,\).*0 to 2"):
        Count(features=(5,)).reward(window([[0.0, 0.0, 0.0]]))
    with pytest.raises(ValueError, match="cell=0"):
        Count(cell=0)


def test_a_seeded_fraction_of_the_windows_is_counted():
    rows = window([[float(i)] for i in range(100)])
    ones, others = Count(seed=3), Count(seed=3)
    for bonus in (ones, others):
        bonus.learn(rows, train_fraction=0.25)
    assert len(ones.visits) == 25
    assert ones.visits == others.visits
    assert Count(seed=4).learn(rows, 0.25)[1] == {"bonus/mean": 1.0, "bonus/cells": 25.0}


def test_counting_continues_from_a_saved_state_and_mismatches_raise():
    rows = window([[0.1, 0.7], [3.0, 0.2], [3.1, 0.2]])
    bonus, again = Count(cell=0.5), Count(cell=0.5)
    assert same(again.state_dict(), Count(2, cell=0.5).state_dict() | {"feature_dim": 0}) is False
    again.load_state_dict(bonus.state_dict())  # of nothing yet
    bonus.learn(rows, 0.7)
    again.load_state_dict(bonus.state_dict())
    for each in (bonus, again):
        each.learn(rows, 0.7)
    assert same(bonus.state_dict(), again.state_dict())
    assert torch.equal(bonus.reward(rows), again.reward(rows))
    assert assert_refused_or_loaded(again, bonus.state_dict()) > 10
    with pytest.raises(ValueError, match=r"cell is 0\.5, but here it is 1"):
        Count(cell=1.0).load_state_dict(bonus.state_dict())
