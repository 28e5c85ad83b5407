"""Registration of the tasks with Gymnasium."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from mimex.envs.catalog import VARIANTS
from mimex.envs.experts import run
from mimex.envs.manipulation import VectorManipulation
from mimex.envs.register import register_all
from mimex.envs.single import Manipulation


def test_registering_needs_no_mujoco_and_no_torch() -> None:
    code = (
        "import sys, gymnasium, mimex.envs; "
        "assert {'mimex/KukaMove-v0', 'dmc/humanoid_CMU_run'} <= set(gymnasium.registry); "
        "assert not {'dm_control', 'mujoco', 'torch', 'OpenGL'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_registering_twice_changes_nothing() -> None:
    register_all()
    before = dict(gymnasium.registry)
    register_all()
    assert gymnasium.registry == before
    assert sum(name.startswith("mimex/") and name.endswith("-v0") for name in before) >= 8


def test_make_and_make_vec_return_single_and_vector_environments() -> None:
    assert isinstance(gymnasium.make("mimex/FrankaReach-v0").unwrapped, Manipulation)
    vector = gymnasium.make_vec("mimex/FrankaReach-v0", num_envs=3, reward="dense", threads=1)
    assert isinstance(vector, VectorManipulation)
    assert vector.num_envs == 3
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    with pytest.raises(ValueError, match="did you mean 'reward'"):
        gymnasium.make("mimex/FrankaReach-v0", rewards="dense")


def test_a_variant_is_a_published_task_with_other_settings() -> None:
    variant = gymnasium.make_vec("mimex/FrankaReachUp-v0", num_envs=2, threads=1)
    by_hand = gymnasium.make_vec(
        "mimex/FrankaReach-v0",
        num_envs=2,
        threads=1,
        goal_spread=0.0,
        goal_offset=(0.0, 0.0, 0.35),
        terms=("goal_bonus=8",),
        episode_steps=100,
    )
    assert variant.unwrapped.settings == by_hand.unwrapped.settings
    assert np.array_equal(variant.reset(seed=3)[0], by_hand.reset(seed=3)[0])
    other = gymnasium.make_vec("mimex/FrankaReachUp-v0", num_envs=1, threads=1, episode_steps=7)
    assert other.unwrapped.episode_steps == 7  # the argument overrides the variant


@pytest.mark.parametrize("name", VARIANTS)
def test_the_expert_solves_the_variants(name) -> None:
    assert run(name, range(20)).all()


def test_random_actions_do_not_reach_the_goals_of_the_variants() -> None:
    """For 25,600 steps with a policy's initial action noise."""
    for name in VARIANTS:
        env = gymnasium.make_vec(f"mimex/{name}-v0", num_envs=256, threads=1)
        env.reset(seed=0)
        rng = np.random.default_rng(0)
        for _ in range(100):
            action = rng.normal(0, 0.5, env.action_space.shape).astype(np.float32)
            reward = env.step(action)[1]
            assert (reward <= 0).all(), name
