"""Episodes that start in states of an expert."""

from __future__ import annotations

import numpy as np
import pytest
from tests.envs.test_manipulation import still

from mimex.envs.experts.starts import EPISODES, expert_starts
from mimex.envs.manipulation import VectorManipulation
from mimex.envs.settings import TASKS, Settings

ABOVE_TABLE = 0.05  # m: a cube whose center is this far above its resting height is held


def lifted(env: VectorManipulation) -> np.ndarray:
    """Which cubes are clearly above the table."""
    columns, _ = env.engine.joint_columns(["cube"])
    return env.engine.qpos[:, columns][:, 2] > 0.4 + 0.0225 + ABOVE_TABLE


def after_one_episode(share: float, seed: int = 0) -> VectorManipulation:
    """64 environments after the autoreset to their second episode."""
    env = VectorManipulation("FrankaPick", 64, episode_steps=1, expert_starts=share)
    env.reset(seed=seed)
    assert not lifted(env).any()  # `reset` does not use expert states
    env.step(still(env))
    return env


def test_the_given_fraction_of_episodes_starts_in_expert_states() -> None:
    away = [
        np.abs(after_one_episode(share).targets - after_one_episode(0.0).targets).max(axis=1) > 1e-9
        for share in (0.0, 0.25, 1.0)
    ]
    assert away[0].sum() == 0
    assert 6 <= away[1].sum() <= 28  # 16 of 64, plus or minus three standard deviations
    assert away[2].sum() >= 60  # some initial states are the first of an expert's episode


def test_some_episodes_start_with_the_cube_in_the_hand_and_can_succeed() -> None:
    env = after_one_episode(1.0)
    held = lifted(env)
    assert 4 < held.sum() < 60
    for _ in range(5):
        observation, *_ = env.step(still(env))
        assert np.isfinite(observation).all()


def test_the_same_seed_gives_the_same_starts_and_another_seed_others() -> None:
    one, same, other = (after_one_episode(1.0, seed).engine.state() for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_expert_states_up_to_success(task: str) -> None:
    starts = expert_starts(task, Settings())
    assert len(starts["physics"]) == len(starts["targets"]) > 4 * EPISODES
    env = VectorManipulation(task, len(starts["physics"]))
    assert starts["physics"].shape == env.engine.state().shape


def test_a_fraction_above_one_raises() -> None:
    with pytest.raises(ValueError, match=r"expert_starts is 1\.5, but must be in \[0, 1\]"):
        VectorManipulation("FrankaReach", 1, expert_starts=1.5)
