"""Reward terms and the published weights."""

from __future__ import annotations

import numpy as np
import pytest

from mimex.envs import reward
from mimex.envs.catalog import TASKS


def test_near_is_flat_below_its_floor() -> None:
    distance = np.array([0.0, 0.02, 0.06])
    # 1 / (0.04 + 0.02) twice, then 1 / (0.04 + 0.06).
    np.testing.assert_allclose(reward.near(distance, 0.02, 0.04), [50 / 3, 50 / 3, 10.0])


def test_a_bonus_term_is_one_half() -> None:
    np.testing.assert_array_equal(reward.bonus(np.array([True, False])), [0.5, 0.0])


def test_action_penalty_is_minus_the_squared_length() -> None:
    np.testing.assert_array_equal(reward.action_penalty(np.array([[3.0, -4.0], [0, 1]])), [-25, -1])


def test_total_is_the_weighted_sum() -> None:
    terms = {"a": np.array([1.0, 2.0]), "b": np.array([10.0, 20.0]), "c": np.array([np.nan, 0.0])}
    # A term of weight 0 is not evaluated.
    np.testing.assert_array_equal(reward.total(terms, {"a": 2.0, "b": 0.5, "c": 0.0}), [7.0, 14.0])
    np.testing.assert_array_equal(reward.total(terms, {"a": 0.0, "b": 0.0, "c": 0.0}), [0.0, 0.0])


def test_sparse_removes_the_first_dense_term_and_sparser_the_second() -> None:
    dense, sparse, sparser = (reward.weights("KukaPick", name) for name in reward.SHAPINGS)
    assert dense["finger_distance"] == 0.04
    assert dense["thumb_distance"] == 0.08
    assert sparse == dense | {"finger_distance": 0.0, "thumb_distance": 0.0}
    assert sparser == sparse | {"goal_distance": 0.0}
    assert reward.weights("FrankaPick", "dense")["lift_bonus"] == 4.0
    assert reward.weights("FrankaPick", "sparse")["lift_bonus"] == 12.0
    assert reward.weights("FrankaCabinet", "sparse")["handle_bonus"] == 3.0


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_an_action_penalty(task: str) -> None:
    assert all(reward.weights(task, name)["action_penalty"] == 0.01 for name in reward.SHAPINGS)


def test_a_mapping_sets_the_weights_of_its_terms() -> None:
    chosen = reward.weights("FrankaReach", {"goal_bonus": 1})
    assert chosen == {"goal_distance": 0.0, "goal_bonus": 1.0, "action_penalty": 0.0}


def test_weights_of_single_terms_can_be_changed() -> None:
    sparse = reward.weights("FrankaCabinet", "sparse")
    changed = reward.reweighed("FrankaCabinet", sparse, ["handle_bonus=0", "open_bonus=1.5"])
    assert changed == sparse | {"handle_bonus": 0.0, "open_bonus": 1.5}
    with pytest.raises(ValueError, match="did you mean 'handle_bonus'"):
        reward.reweighed("FrankaCabinet", sparse, ["handle_bonu=0"])
    for change in ("handle_bonus", "handle_bonus=", "handle_bonus=nan", "handle_bonus=none"):
        with pytest.raises(ValueError, match=f"terms has '{change}'.*'handle_bonus=0'"):
            reward.reweighed("FrankaCabinet", sparse, [change])


def test_an_unknown_term_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match="did you mean 'sparse'"):
        reward.weights("FrankaPick", "sparsest")
    with pytest.raises(ValueError, match="'lift_bonus'"):
        reward.weights("FrankaPick", {"lift": 1.0})
    with pytest.raises(ValueError, match="did you mean 'FrankaPick'"):
        reward.weights("frankapick", "dense")
    with pytest.raises(ValueError, match="must be finite"):
        reward.weights("FrankaPick", {"lift_bonus": float("nan")})
