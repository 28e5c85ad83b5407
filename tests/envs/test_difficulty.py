"""The curriculum over rewards."""

from __future__ import annotations

import json

import pytest

from mimex.envs.difficulty import Curriculum, shapings


def test_reach_has_two_shapings_and_pick_three() -> None:
    assert shapings("FrankaReach") == ("dense", "sparse")
    assert shapings("KukaPick") == ("dense", "sparse", "sparser")


def test_the_reward_gets_harder_when_it_is_mastered() -> None:
    curriculum = Curriculum("FrankaPick", success_rate=0.75, episodes=4)
    assert not curriculum.record([True, True, True])  # too few to tell
    assert curriculum.record([False])  # 3 of 4
    assert curriculum.reward == "sparse"
    assert not curriculum.record([True, False, True, False])  # 2 of 4
    assert curriculum.record([True, True, True])  # the last four
    assert curriculum.reward == "sparser"
    assert not curriculum.record([True] * 10)  # the end


def test_it_goes_on_from_a_saved_state() -> None:
    curriculum = Curriculum("FrankaPick", success_rate=1.0, episodes=2)
    curriculum.record([True, True])
    curriculum.record([True])
    twin = Curriculum("FrankaPick", success_rate=1.0, episodes=2)
    twin.set_state(json.loads(json.dumps(curriculum.get_state())))
    assert twin.reward == "sparse"
    assert twin.record([True])


def test_impossible_thresholds_are_refused() -> None:
    with pytest.raises(ValueError, match="success_rate is 0"):
        Curriculum("FrankaPick", success_rate=0.0)
    with pytest.raises(ValueError, match="episodes is 0"):
        Curriculum("FrankaPick", episodes=0)
