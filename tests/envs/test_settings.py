"""Keyword arguments of the tasks."""

from __future__ import annotations

import pytest

from mimex.envs.manipulation import VectorManipulation
from mimex.envs.settings import Settings


@pytest.mark.parametrize(
    ("task", "reward", "steps"),
    [
        ("FrankaReach", "sparse", 200),
        ("KukaReach", "dense", 200),
        ("FrankaCabinet", "dense", 500),
        ("FrankaCabinet", "sparse", 1000),
        ("FrankaCabinet", "sparser", 1000),
        ("KukaCabinet", "sparse", 500),
        ("FrankaPick", "sparse", 500),
        ("KukaMove", "dense", 500),
    ],
)
def test_episodes_have_the_published_length(task: str, reward: str, steps: int) -> None:
    assert Settings(reward=reward).length(task) == steps


def test_an_episode_lasts_as_long_at_another_control_rate_by_default() -> None:
    assert Settings(control_hz=30).length("FrankaReach") == 100
    assert Settings(control_hz=30, episode_steps=7).length("FrankaReach") == 7


@pytest.mark.parametrize(("hz", "substeps"), [(60, 1), (120, 1), (30, 2), (20, 3), (25, 3)])
def test_no_simulation_step_is_longer_than_a_sixtieth(hz: float, substeps: int) -> None:
    assert Settings(control_hz=hz).substeps() == substeps


def test_threads_are_one_per_eight_environments_by_default() -> None:
    assert Settings().thread_count(1) == 1
    assert Settings().thread_count(15) == 1
    assert Settings(threads=3).thread_count(1) == 3


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"observation": "pixel"}, "did you mean 'pixels'"),
        ({"quality": "nicer"}, "did you mean 'nice'"),
        ({"lift": "centre"}, "did you mean 'center'"),
        ({"image_sise": 84}, "did you mean 'image_size'"),
        ({"control_hz": 0}, "control_hz is 0, but must be above 0"),
        ({"episode_steps": 0}, "episode_steps is 0, but must be 1 or more, or None"),
        ({"goal_spread": -1.0}, "goal_spread is -1.0, but must be 0 or more"),
        ({"opening": 0.41}, "opening is 0.41, but must be above 0.02 and at most 0.4 m"),
        ({"fovy": 180}, "fovy is 180, but must be between 0 and 180 degrees, or None"),
    ],
)
def test_an_invalid_choice_raises_with_a_remedy(chosen: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.of(**chosen)


@pytest.mark.parametrize(
    ("task", "chosen", "message"),
    [
        ("FrankaReach", {"lift": "held"}, r"lift is 'held', but FrankaReach .* of Pick, Move"),
        ("FrankaPick", {"opening": 0.1}, r"opening is 0.1, but FrankaPick .* of Cabinet"),
        ("KukaMove", {"hold": False}, r"hold is False, but KukaMove .* of Cabinet"),
        ("KukaCabinet", {"goal_offset": (0.1, 0.0, 0.0)}, r"goal_offset is .* of Reach, Move"),
        ("FrankaPick", {"goal_spread": 0.0}, r"goal_spread is 0.0, .* of Reach, Move"),
        ("FrankaReach", {"object_spread": 0.0}, r"object_spread is .* of Cabinet, Pick, Move"),
    ],
)
def test_settings_of_other_tasks_raise(task: str, chosen: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VectorManipulation(task, **chosen)


def test_a_task_accepts_the_defaults_of_settings_it_does_not_use() -> None:
    VectorManipulation("FrankaReach", lift="clear", opening=0.32, hold=True).close()


def test_the_folder_for_unstable_states_can_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MIMEX_UNSTABLE_DIR", "somewhere")
    assert Settings().unstable_dir == "somewhere"
    assert Settings(unstable_dir="elsewhere").unstable_dir == "elsewhere"
