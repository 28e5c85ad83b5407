"""Tasks of the suite as Gymnasium environments, compared with dm_control."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from mimex.envs.dmc import DMC
from mimex.envs.dmc_physics import dm_control_suite
from mimex.envs.dmc_tasks import NAMES, PUBLISHED, domain_and_task

DRAWN_INTO_THE_MODEL = ("finger_turn_hard", "point_mass_hard", "swimmer_swimmer6")
STATEFUL = (*PUBLISHED, *DRAWN_INTO_THE_MODEL, "lqr_lqr_2_1", "hopper_hop")


def actions_for(env: DMC, steps: int, seed: int = 0) -> np.ndarray:
    shape = env.action_space.shape
    assert shape is not None
    return np.random.default_rng(seed).uniform(-1, 1, (steps, *shape)).astype(np.float32)


@pytest.mark.parametrize("task", ["cartpole_swingup", "quadruped_walk", "lqr_lqr_2_1"])
def test_the_environment_passes_gymnasiums_check_env(task: str) -> None:
    env = gymnasium.make(f"dmc/{task}").unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the state has no bounds
        check_env(env, skip_render_check=True)


@pytest.mark.parametrize("task", PUBLISHED)
def test_a_step_equals_two_steps_of_dm_control(task: str) -> None:
    env = DMC(task)
    own = dm_control_suite().load(*domain_and_task(task), task_kwargs={"random": 7})
    spec = own.action_spec()
    observation, _ = env.reset(seed=7)
    moment = own.reset()
    for action in actions_for(env, 20):
        expected = np.concatenate([np.ravel(part) for part in moment.observation.values()])
        np.testing.assert_equal(observation, expected.astype(np.float32))
        scaled = spec.minimum + (action.astype(float) + 1) / 2 * (spec.maximum - spec.minimum)
        rewards = []
        for _ in range(2):
            moment = own.step(scaled)
            rewards.append(moment.reward)
        observation, reward, terminated, truncated, _ = env.step(action)
        assert reward == sum(rewards)
        assert not terminated
        assert not truncated


def test_the_time_limit_truncates() -> None:
    env = DMC("cartpole_swingup", action_repeat=8)  # 1,000 control steps
    env.reset(seed=0)
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(125)]
    assert ends[:-1] == [(False, False)] * 124
    assert ends[-1] == (False, True)


def test_the_end_of_the_task_terminates() -> None:
    # lqr terminates if the norm of its state is below 1e-6.
    env = DMC("lqr_lqr_2_1")
    env.reset(seed=0)
    with env.environment.physics.reset_context():
        env.environment.physics.data.qpos[:] = 0
        env.environment.physics.data.qvel[:] = 0
    _, _, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
    assert (terminated, truncated) == (True, False)


def test_an_episode_can_end_within_an_action_repeat() -> None:
    env = DMC("cartpole_swingup", action_repeat=300)
    env.reset(seed=0)
    for _ in range(3):
        *_, truncated, _ = env.step(np.zeros(1, np.float32))
        assert not truncated
    *_, truncated, _ = env.step(np.zeros(1, np.float32))
    assert truncated
    assert env.environment.physics.time() == pytest.approx(10.0)  # s: the suite's limit


def assert_same(one: Any, other: Any) -> None:
    np.testing.assert_equal(one, other)


def compare_restored_with_undisturbed(task: str, steps: int = 12, **settings: Any) -> None:
    """Compares steps before and after a reset, in an environment that had another state before."""
    straight, restored = DMC(task, **settings), DMC(task, **settings)
    actions = actions_for(straight, 3 * steps)
    straight.reset(seed=1)
    restored.reset(seed=2)
    for action in actions[:steps]:
        straight.step(action)
        restored.step(-action)
    state = straight.get_state()
    restored.set_state(state)
    assert_same(restored.get_state(), state)
    for action in actions[steps : 2 * steps]:
        assert_same(restored.step(action), straight.step(action))
    assert_same(restored.reset(), straight.reset())
    for action in actions[2 * steps :]:
        assert_same(restored.step(action), straight.step(action))
    assert_same(restored.get_state(), straight.get_state())
    straight.close()
    restored.close()


@pytest.mark.parametrize("task", STATEFUL)
def test_a_restored_environment_continues_bit_for_bit(task: str) -> None:
    compare_restored_with_undisturbed(task)


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(set(NAMES) - set(STATEFUL)))
def test_all_other_tasks_continue_bit_for_bit(task: str) -> None:
    compare_restored_with_undisturbed(task, steps=6)


@pytest.mark.render
def test_pixels_continue_bit_for_bit() -> None:
    compare_restored_with_undisturbed(
        "finger_turn_hard", steps=4, observation="pixels", quality="fast", stack=3
    )


def test_a_state_of_another_task_raises() -> None:
    one, other = DMC("cartpole_swingup"), DMC("cartpole_balance")
    one.reset(seed=0)
    with pytest.raises(ValueError, match=r"cartpole_swingup, but this one is cartpole_balance"):
        other.set_state(one.get_state())


@pytest.mark.render
def test_stacked_frames_are_the_newest_ones_oldest_first() -> None:
    single = DMC("cartpole_swingup", observation="pixels", quality="fast")
    stacked = DMC("cartpole_swingup", observation="pixels", quality="fast", stack=3)
    frames = [single.reset(seed=0)[0]]
    assert frames[0].shape == (3, 84, 84)
    observation, _ = stacked.reset(seed=0)
    assert_same(observation, np.concatenate([frames[0]] * 3))
    for action in actions_for(single, 4):
        frames.append(single.step(action)[0])
        observation, *_ = stacked.step(action)
    assert_same(observation, np.concatenate(frames[-3:]))
    assert len({frame.tobytes() for frame in frames}) == len(frames)
    assert_same(stacked.reset(seed=0)[0], np.concatenate([frames[0]] * 3))
    for env in (single, stacked):
        env.close()


@pytest.mark.render
def test_render_returns_a_large_image_only_in_render_mode() -> None:
    env = DMC("cartpole_swingup", render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (480, 640, 3)
    env.close()
    assert DMC("cartpole_swingup").render() is None


def test_a_custom_dm_control_environment_can_be_wrapped() -> None:
    env = DMC(dm_control_suite().load("pendulum", "swingup"), action_repeat=1)
    observation, _ = env.reset(seed=0)
    assert observation.shape == (3,)
    assert env.name == "SwingUp"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task": "cartpole_swingupp"}, "did you mean 'cartpole_swingup'"),
        ({"observation": "pixel"}, "did you mean 'pixels'"),
        ({"quality": "fst"}, "did you mean 'fast'"),
        ({"action_repeat": 0}, "action_repeat is 0"),
        ({"stack": 0}, "stack is 0"),
        ({"render_mode": "human"}, "render_mode is 'human'"),
    ],
)
def test_a_wrong_setting_raises_with_its_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DMC(**({"task": "cartpole_swingup"} | settings))


@pytest.mark.parametrize("action", [[np.nan], [0.0, 0.0], 0.0])
def test_an_invalid_action_raises(action: Any) -> None:
    env = DMC("cartpole_swingup")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="must be 1 finite values"):
        env.step(action)
