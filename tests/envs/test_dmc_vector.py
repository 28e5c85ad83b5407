from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from mimex.envs.dmc import DMC
from mimex.envs.dmc_vector import VectorDMC


def test_make_and_make_vec_return_single_and_vector_environments() -> None:
    assert isinstance(gymnasium.make("dmc/cartpole_swingup").unwrapped, DMC)
    vector = gymnasium.make_vec("dmc/cartpole_swingup", num_envs=2, action_repeat=4)
    assert isinstance(vector, VectorDMC)
    assert vector.frames_a_step == 4
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert vector.metadata["render_fps"] == 25  # control at 100 Hz


@pytest.mark.parametrize(("repeat", "steps"), [(2, 500), (300, 4)])
def test_the_episode_length_is_known_before_the_first_step(repeat: int, steps: int) -> None:
    vector = VectorDMC("cartpole_swingup", action_repeat=repeat)
    assert vector.episode_steps == steps
    vector.reset(seed=0)
    made = 1
    while not vector.step(np.zeros((1, 1)))[3].any():
        made += 1
    assert made == steps


def test_environment_i_uses_the_ith_seed() -> None:
    vector = VectorDMC("cartpole_swingup", 3)
    observation, _ = vector.reset(seed=4)
    assert vector.observation_space.contains(observation)
    for i in range(3):
        np.testing.assert_equal(observation[i], DMC("cartpole_swingup").reset(seed=4 + i)[0])
    again, _ = vector.reset(seed=[6, 4, 4])
    np.testing.assert_equal(again, observation[[2, 0, 0]])


def test_an_ended_episode_is_reset_in_the_same_step() -> None:
    vector = VectorDMC("cartpole_swingup", 2, action_repeat=500)
    alone = DMC("cartpole_swingup", action_repeat=500)
    vector.reset(seed=0)
    alone.reset(seed=1)
    push = np.full((2, 1), 0.1, np.float32)
    _, _, _, truncated, info = vector.step(push)
    assert not truncated.any()
    assert info == {}
    alone.step(push[1])
    observation, _, terminated, truncated, info = vector.step(push)
    assert truncated.all()
    assert not terminated.any()
    np.testing.assert_equal(info["final_obs"][1], alone.step(push[1])[0])
    np.testing.assert_equal(observation[1], alone.reset()[0])
    assert info["_final_obs"].tolist() == [True, True]


def test_restored_environments_continue_bit_for_bit() -> None:
    straight, restored = (VectorDMC("reacher_hard", 2) for _ in range(2))
    straight.reset(seed=0)
    restored.reset(seed=9)
    restored.set_state(straight.get_state())
    action = np.full((2, 2), 0.3, np.float32)
    for _ in range(3):
        np.testing.assert_equal(restored.step(action), straight.step(action))


def test_positions_are_the_state_of_the_task() -> None:
    vector = VectorDMC("cartpole_swingup", 2)
    observation, _ = vector.reset(seed=0)
    np.testing.assert_equal(vector.positions(), observation)


def test_zero_environments_raise() -> None:
    with pytest.raises(ValueError, match="num_envs is 0"):
        VectorDMC("cartpole_swingup", 0)
