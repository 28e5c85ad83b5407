from __future__ import annotations

import pytest

from mimex.envs.dmc_physics import dm_control_suite
from mimex.envs.dmc_tasks import NAMES, PUBLISHED, camera_of, domain_and_task


def test_the_task_names_are_those_of_the_installed_suite() -> None:
    assert set(map(domain_and_task, NAMES)) == set(dm_control_suite().ALL_TASKS)
    assert set(PUBLISHED) <= set(NAMES)


def test_domains_of_two_words_are_split_from_their_tasks() -> None:
    assert domain_and_task("ball_in_cup_catch") == ("ball_in_cup", "catch")
    assert domain_and_task("humanoid_CMU_run") == ("humanoid_CMU", "run")
    assert domain_and_task("lqr_lqr_2_1") == ("lqr", "lqr_2_1")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("cartpole_swing_up", "cartpole_swingup"), ("quadruped_runs", "quadruped_run")],
)
def test_an_unknown_task_raises_with_the_nearest_name(wrong: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        domain_and_task(wrong)


def test_the_quadruped_uses_the_published_camera() -> None:
    assert camera_of("quadruped") == 2
    assert camera_of("cartpole") == 0
