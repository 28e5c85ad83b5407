"""Episodes of the vector environment: success, ends, guards, resets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from mimex.envs.engine import CpuEngine
from mimex.envs.manipulation import VectorManipulation
from mimex.envs.robots.franka import FRANKA


def still(env: VectorManipulation) -> np.ndarray:
    """Actions that keep every joint target where it is."""
    return np.zeros(env.action_space.shape)


def hold_cube(env: VectorManipulation, row: int, place: tuple[float, float, float]) -> None:
    """Put the cube of one environment somewhere, at rest; it falls 2.7 mm in the next step."""
    positions, velocities = env.engine.joint_columns(["cube"])
    env.engine.qpos[row, positions] = (*place, 1.0, 0.0, 0.0, 0.0)
    env.engine.qvel[row, velocities] = 0.0


def test_success_requires_ten_consecutive_steps_and_persists() -> None:
    env = VectorManipulation("FrankaReach", 2)
    env.reset(seed=0)
    goal, hand = env.engine.mocap("goal"), env.world.task.hand()
    far = hand[0] + (0.0, 0.0, 0.2)
    goal[0] = hand[0]
    goal[1] = far
    for _ in range(9):
        *_, info = env.step(still(env))
        assert not info["success"].any()
    goal[0] = far  # one step short: the counter restarts
    env.step(still(env))
    goal[0] = hand[0]
    for step in range(10):
        *_, info = env.step(still(env))
        assert info["success"][0] == (step == 9)
    goal[0] = far
    *_, info = env.step(still(env))
    np.testing.assert_array_equal(info["success"], [True, False])
    assert info["reward/goal_bonus"][0] == 0.0


def test_success_steps_is_configurable_and_reset_clears_success() -> None:
    env = VectorManipulation("FrankaReach", 1, success_steps=1, episode_steps=3)
    env.reset(seed=0)
    env.engine.mocap("goal")[0] = env.world.task.hand()[0]
    for _ in range(3):
        *_, truncated, info = env.step(still(env))
    assert truncated[0]
    assert info["final_info"]["success"][0]
    *_, info = env.step(still(env))
    assert not info["success"][0]


@pytest.mark.parametrize(("task", "drop"), [("FrankaPick", 0.04), ("KukaMove", 0.06)])
def test_a_fallen_cube_ends_the_episode(task: str, drop: float) -> None:
    env = VectorManipulation(task, 2, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    start = env.world.task.memory["start_height"][0]
    # Beside the table, where it falls freely: 2.7 mm in the step.
    hold_cube(env, 0, (0.0, -0.6, start - drop + 0.004))
    hold_cube(env, 1, (0.0, -0.6, start - drop - 0.001))
    _, _, terminated, truncated, info = env.step(still(env))
    np.testing.assert_array_equal(info["object_fallen"], [False, True])
    np.testing.assert_array_equal(terminated, [False, True])
    assert not truncated.any()


@pytest.mark.parametrize("task", ["FrankaPick", "KukaPick", "FrankaMove", "KukaMove"])
def test_a_cube_counts_as_touched_while_it_is_moved_along_the_table(task: str) -> None:
    env = VectorManipulation(task, 2, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    for _ in range(30):  # it drops onto the table and comes to rest
        *_, info = env.step(still(env))
        np.testing.assert_array_equal(info["object_touched"], [False, False])
    _, velocities = env.engine.joint_columns(["cube"])
    env.engine.qvel[1, velocities.start] = 0.3  # m/s; the table's friction takes some of it
    *_, info = env.step(still(env))
    np.testing.assert_array_equal(info["object_touched"], [False, True])


def test_tasks_without_a_cube_report_no_touch() -> None:
    env = VectorManipulation("FrankaReach", 1)
    env.reset(seed=0)
    assert "object_touched" not in env.step(still(env))[-1]


@pytest.mark.parametrize("task", ["FrankaPick", "KukaPick"])
def test_a_touched_arm_ends_the_episode_but_a_touched_finger_does_not(task: str) -> None:
    env = VectorManipulation(task, 2, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    bodies = env.engine.field("xpos")
    env.engine.refresh()
    elbow = bodies[0, env.model.body(env.robot.arm_bodies[4]).id]
    finger = env.engine.site(env.robot.fingers[0])[1]
    hold_cube(env, 0, tuple(elbow))
    hold_cube(env, 1, tuple(finger))
    _, _, terminated, _, info = env.step(still(env))
    np.testing.assert_array_equal(info["arm_touched"], [True, False])
    np.testing.assert_array_equal(terminated, [True, False])


def test_actions_move_the_targets_by_the_published_control_law() -> None:
    env = VectorManipulation("FrankaReach", 1)
    env.reset(seed=0)
    before = env.targets.copy()
    env.step(np.full((1, 9), 0.2))
    moved = (env.targets - before)[0]
    np.testing.assert_allclose(moved[:7], 0.2 * 7.5 / 60)  # rad
    assert moved[7] <= 0.1 * 0.2 * 7.5 / 60 + 1e-12  # m, or less at the finger's stop
    for _ in range(60):
        env.step(np.full((1, 9), 1.0))
    np.testing.assert_array_equal(env.targets[0], env.world.joints.high)


@pytest.mark.parametrize("task", ["FrankaReach", "KukaPick"])
def test_actions_are_clipped_to_their_bounds(task: str) -> None:
    """In the motion and in the penalty, as published."""
    results = []
    for size in (1.0, 3.0):
        env = VectorManipulation(task, 2)
        env.reset(seed=0)
        actions = size * np.sign(np.random.default_rng(0).normal(size=env.targets.shape))
        observation, rewards, _, _, info = env.step(actions)
        results.append((observation, rewards, info["reward/action_penalty"]))
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(results[0][2], -float(len(env.robot.joints)))


def test_the_frankas_joint_speeds_are_limited_as_published() -> None:
    """Full speed for a third of a second, then back. The wrist's weak motors cannot stay below
    their limit against the arm's swing; the first four joints do, except in contacts."""
    too_fast = []
    for leads in (FRANKA.leads, None):
        env = VectorManipulation("FrankaReach", 64)
        env.world.robot = replace(env.robot, leads=leads)
        env.reset(seed=0)
        signs = np.random.default_rng(0).choice([-1.0, 1.0], env.targets.shape)
        speeds = []
        for step in range(60):
            env.step(signs if step % 40 < 20 else -signs)
            speeds.append(np.abs(env.engine.qvel[:, :4]))
        too_fast.append(np.mean(np.concatenate(speeds) > 1.1 * 2.175))
    limited, free = too_fast
    assert limited < 0.03
    assert free > 0.3


def test_the_control_law_is_per_second_at_any_control_rate() -> None:
    env = VectorManipulation("FrankaReach", 1, control_hz=20)
    env.reset(seed=0)
    before = env.targets.copy()
    env.step(np.full((1, 9), 0.1))
    np.testing.assert_allclose((env.targets - before)[0, :7], 0.1 * 7.5 / 20)
    assert env.engine.state()[0, 0] == pytest.approx(1 / 20)  # simulated time (s)


def test_an_unstable_simulation_ends_its_episode_and_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to a file in the current folder
    env = VectorManipulation("FrankaPick", 3, unstable_dir="saved")
    env.reset(seed=0)
    env.step(still(env))
    env.engine.qvel[1, 0] = 1e7
    observation, rewards, terminated, truncated, info = env.step(still(env))
    np.testing.assert_array_equal(terminated, [False, True, False])
    assert not truncated.any()
    assert info["final_info"]["unstable"][1]
    assert info["final_info"]["unstable_episodes"][1] == 1
    assert np.isfinite(observation).all()
    assert np.isfinite(rewards).all()
    assert np.isfinite(info["final_obs"][1]).all()
    (path,) = (tmp_path / "saved").iterdir()
    saved = np.load(path)
    note = json.loads(str(saved["note"]))
    assert (note["task"], note["env"], note["episode_step"]) == ("FrankaPick", 1, 2)
    # The file reproduces the failure.
    engine = CpuEngine(env.model, 1)
    engine.restore(saved["state"][None])
    assert engine.step(saved["targets"][None])[0]
    *_, info = env.step(still(env))
    np.testing.assert_array_equal(info["unstable_episodes"], [0, 1, 0])
    assert not info["unstable"].any()


def test_an_invalid_action_changes_nothing() -> None:
    env = VectorManipulation("FrankaReach", 2)
    env.reset(seed=0)
    before = env.get_state()
    bad = still(env)
    bad[1, 3] = np.nan
    with pytest.raises(ValueError, match="environment 1, episode step 0"):
        env.step(bad)
    np.testing.assert_equal(env.get_state(), before)


def test_a_mask_resets_some_environments() -> None:
    env = VectorManipulation("FrankaReach", 3, autoreset_mode=AutoresetMode.DISABLED)
    before, _ = env.reset(seed=0)
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    assert not np.array_equal(after[1], before[1])


def test_spread_and_noise_scale_the_initial_states() -> None:
    env = VectorManipulation("FrankaMove", 20, goal_spread=0, object_spread=0.5, joint_noise=0)
    env.reset(seed=0)
    np.testing.assert_allclose(env.engine.mocap("goal"), np.tile((0.5, 0.0, 0.7), (20, 1)))
    assert np.ptp(env.world.task.cube()[:, 1]) <= 0.2
    np.testing.assert_allclose(env.targets, np.tile(env.robot.home, (20, 1)))


@pytest.mark.parametrize(("task", "center"), [("FrankaReach", 0.55), ("KukaMove", 0.5)])
def test_goal_offset_moves_the_goals(task: str, center: float) -> None:
    env = VectorManipulation(task, 4, goal_spread=0.0, goal_offset=(-0.1, 0.2, 0.05))
    env.reset(seed=0)
    goals = env.engine.mocap("goal")
    np.testing.assert_allclose(goals[:, :2], np.tile((center - 0.1, 0.2), (4, 1)), atol=1e-7)


def test_set_reward_changes_the_reward() -> None:
    env = VectorManipulation("FrankaReach", 1, reward="dense")
    env.reset(seed=0)
    _, dense, *_ = env.step(still(env))
    env.set_reward("sparse")
    _, sparse, *_ = env.step(still(env))
    assert dense[0] > 0.05
    assert sparse[0] == 0.0


def test_terms_keep_their_own_weights_when_the_reward_changes() -> None:
    env = VectorManipulation(
        "FrankaPick", 1, reward="sparse", terms=("lift_bonus=1", "goal_bonus=0")
    )
    assert (env.weights["lift_bonus"], env.weights["goal_bonus"]) == (1.0, 0.0)
    env.set_reward("dense")
    assert env.weights["object_distance"] == 0.08
    assert (env.weights["lift_bonus"], env.weights["goal_bonus"]) == (1.0, 0.0)


def test_the_interface_equals_gymnasiums_sync_vector_env() -> None:
    chosen = {"num_envs": 3, "episode_steps": 6}
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    theirs = gymnasium.make_vec(
        "mimex/FrankaPick-v0", vectorization_mode="sync", vector_kwargs=same_step, **chosen
    )
    native = gymnasium.make_vec("mimex/FrankaPick-v0", **chosen)
    np.testing.assert_array_equal(theirs.reset(seed=5)[0], native.reset(seed=[5, 6, 7])[0])
    random = np.random.default_rng(0)
    for _ in range(8):
        action = random.normal(size=native.action_space.shape)
        *expected, expected_info = theirs.step(action)
        *got, info = native.step(action)
        np.testing.assert_equal(got, expected)
        expected_final = expected_info.pop("final_obs", ())
        np.testing.assert_equal(list(info.pop("final_obs", ())), list(expected_final))
        # Gymnasium omits entries that no environment has; ours masks them.
        for key in set(info) - set(expected_info):
            assert not info[f"_{key.removeprefix('_')}"].any()
        assert set(expected_info) <= set(info)
        np.testing.assert_equal({key: info[key] for key in expected_info}, expected_info)


def test_invalid_choices_raise() -> None:
    with pytest.raises(ValueError, match="did you mean 'FrankaPick'"):
        VectorManipulation("FrankPick")
    with pytest.raises(ValueError, match="num_envs is 0"):
        VectorManipulation("FrankaPick", 0)
    with pytest.raises(ValueError, match="render_mode is 'human'"):
        VectorManipulation("FrankaPick", render_mode="human")
    with pytest.raises(ValueError, match="NEXT_STEP"):
        VectorManipulation("FrankaPick", autoreset_mode=AutoresetMode.NEXT_STEP)
    with pytest.raises(ValueError, match="state is of task FrankaReach"):
        VectorManipulation("FrankaPick").set_state(VectorManipulation("FrankaReach").get_state())
