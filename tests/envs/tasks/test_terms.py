"""Reward terms and observations against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mimex.envs.manipulation import VectorManipulation

# The Franka's fingers are each 35 mm from the middle when it stands at home without noise.
HOME_GRIP = 0.035


def at_home(task: str, **settings: object) -> VectorManipulation:
    env = VectorManipulation(task, 2, joint_noise=0.0, **settings)
    env.reset(seed=0)
    return env


def place_cube(env: VectorManipulation, row: int, place: np.ndarray, quaternion=(1, 0, 0, 0)):
    env.engine.qpos[row, env.engine.joint_columns(["cube"])[0]] = (*place, *quaternion)
    env.engine.refresh()


def middle_of_grip(env: VectorManipulation) -> np.ndarray:
    return env.world.task.fingers()[0].mean(axis=0)


@pytest.mark.parametrize("task", ["FrankaReach", "KukaReach"])
def test_reach(task: str) -> None:
    env = at_home(task)
    fingers = env.world.task.fingers()[0]
    hand = fingers[0] if task == "KukaReach" else fingers.mean(axis=0)
    env.engine.mocap("goal")[:] = hand + np.array([(0.03, 0.0, -0.04), (0.0, 0.039, 0.0)])
    outcome = env.world.task.evaluate()
    # 5 cm: 1 / (0.04 + 0.05); 3.9 cm: 1 / 0.079, and at the goal.
    np.testing.assert_allclose(outcome.terms["goal_distance"], [1 / 0.09, 1 / 0.079])
    np.testing.assert_array_equal(outcome.terms["goal_bonus"], [0.0, 0.5])
    np.testing.assert_array_equal(outcome.met, [False, True])
    np.testing.assert_allclose(env.observe()[0, -9:-6], hand, atol=1e-6)
    np.testing.assert_allclose(env.observe()[0, -3:], (0.03, 0.0, -0.04), atol=1e-6)


def test_franka_pick() -> None:
    env = at_home("FrankaPick")
    grip = middle_of_grip(env)
    place_cube(env, 0, grip)
    place_cube(env, 1, np.array([0.5, 0.0, 0.4225]))
    outcome = env.world.task.evaluate()
    terms = outcome.terms
    # Both fingers 35 mm away: 2 / (0.04 + 0.035).
    assert terms["object_distance"][0] == pytest.approx(2 / 0.075, rel=1e-6)
    np.testing.assert_array_equal(terms["lift_bonus"], [0.5, 0.0])
    away = abs(0.8 - grip[2])
    np.testing.assert_allclose(terms["goal_distance"], [1 / (0.04 + away), 0.0])
    assert terms["goal_bonus"][1] == 0.0
    np.testing.assert_array_equal(outcome.met, [away <= 0.1, False])
    assert not outcome.fallen.any()
    # Fingers, cube, cube - each finger, height left to rise.
    vector = env.observe()[1, 18:]
    np.testing.assert_allclose(vector[6:9], (0.5, 0.0, 0.4225), atol=1e-6)
    np.testing.assert_allclose(vector[9:12], vector[6:9] - vector[:3], atol=1e-6)
    np.testing.assert_allclose(vector[12:15], vector[6:9] - vector[3:6], atol=1e-6)
    assert vector[15] == pytest.approx(0.8 - 0.4225)


@pytest.mark.parametrize(
    ("task", "height", "bonus", "met"),
    [
        ("FrankaPick", 0.841, 0.0, True),
        ("FrankaPick", 0.839, 0.5, True),
        ("FrankaPick", 0.699, 0.0, False),
        ("KukaPick", 0.859, 0.5, True),
        ("KukaPick", 0.861, 0.0, True),
        ("KukaPick", 0.901, 0.0, False),
    ],
)
def test_pick_succeeds_near_the_height_and_has_a_bonus_nearer(
    task: str, height: float, bonus: float, met: bool
) -> None:
    env = at_home(task)
    place_cube(env, 0, np.array([0.3, 0.4, height]))
    outcome = env.world.task.evaluate()
    assert outcome.terms["goal_bonus"][0] == bonus
    assert outcome.met[0] == met


def test_kuka_fingers_and_thumb_have_terms_of_their_own() -> None:
    env = at_home("KukaPick")
    index, middle, ring, thumb = env.world.task.fingers()[0]
    place_cube(env, 0, thumb)
    terms = env.world.task.evaluate().terms
    assert terms["thumb_distance"][0] == pytest.approx(1 / 0.07)  # at its floor of 3 cm
    apart = [max(np.linalg.norm(finger - thumb), 0.03) for finger in (index, middle, ring)]
    assert terms["finger_distance"][0] == pytest.approx(sum(1 / (0.04 + d) for d in apart))
    # Palm, four fingers, cube, cube - each finger, height left to rise.
    vector = env.observe()[0, 46:]
    np.testing.assert_allclose(vector[:3], env.engine.site("palm")[0], atol=1e-6)
    np.testing.assert_allclose(vector[12:15], thumb, atol=1e-6)
    np.testing.assert_allclose(vector[15:18], thumb, atol=1e-6)
    np.testing.assert_allclose(vector[27:30], 0.0, atol=1e-6)


# A cube on its corner: the diagonal (1, 1, 1) turned upright, by acos(1 / sqrt 3) about (1, -1, 0).
_TILT = np.arccos(1 / np.sqrt(3))
ON_CORNER = (np.cos(_TILT / 2), *(np.sin(_TILT / 2) * np.array([1, -1, 0]) / np.sqrt(2)))


@pytest.mark.parametrize(("task", "half"), [("FrankaPick", 0.0225), ("KukaMove", 0.03)])
@pytest.mark.parametrize("lift", ["center", "clear"])
def test_a_cube_on_its_corner_is_lifted_by_its_center_only(
    task: str, half: float, lift: str
) -> None:
    env = at_home(task, lift=lift)
    place_cube(env, 0, np.array([0.5, 0.1, 0.4 + np.sqrt(3) * half]), ON_CORNER)
    assert env.world.task.lifted()[0] == (lift == "center")
    assert env.world.task.evaluate().terms["lift_bonus"][0] == (0.5 if lift == "center" else 0.0)


@pytest.mark.parametrize(("task", "threshold"), [("FrankaPick", 0.015), ("KukaPick", 0.02)])
@pytest.mark.parametrize("lift", ["center", "clear"])
def test_a_level_cube_is_lifted_by_the_threshold_either_way(
    task: str, threshold: float, lift: str
) -> None:
    env = at_home(task, lift=lift)
    start = env.world.task.cube()[0].copy()
    place_cube(env, 0, start + np.array([0, 0, threshold + 1e-4]))
    place_cube(env, 1, start + np.array([0, 0, threshold - 1e-4]))
    np.testing.assert_array_equal(env.world.task.lifted(), [True, False])


@pytest.mark.parametrize("task", ["FrankaPick", "FrankaMove"])
def test_a_cube_in_the_air_is_held_only_between_the_fingers(task: str) -> None:
    env = at_home(task, lift="held")
    middle = middle_of_grip(env)  # each finger is 35 mm away
    place_cube(env, 0, middle)
    # Beside the gripper: 35 mm from one finger, 105 mm from the other.
    fingers = env.world.task.fingers()[1]
    place_cube(env, 1, fingers[0] + (fingers[0] - fingers[1]) / 2)
    np.testing.assert_array_equal(env.world.task.lifted(), [True, False])
    terms = env.world.task.evaluate().terms
    np.testing.assert_array_equal(terms["lift_bonus"], [0.5, 0.0])
    assert terms["goal_distance"][0] > 0 == terms["goal_distance"][1]


@pytest.mark.parametrize("task", ["FrankaPick", "FrankaMove", "KukaPick", "KukaMove"])
@pytest.mark.parametrize("lift", ["clear", "held"])
def test_a_tossed_cube_reaches_the_goal_only_if_lifts_need_not_be_held(
    task: str, lift: str
) -> None:
    env = at_home(task, lift=lift)
    goal = env.engine.mocap("goal")[0] if task.endswith("Move") else np.array([0.9, 0.4, 0.8])
    place_cube(env, 0, goal)  # no finger is near
    outcome = env.world.task.evaluate()
    assert outcome.met[0] == (lift == "clear")
    assert outcome.terms["goal_bonus"][0] == (0.5 if lift == "clear" else 0.0)


@pytest.mark.parametrize("task", ["FrankaPick", "FrankaMove"])
def test_a_held_cube_at_the_goal_is_a_success(task: str) -> None:
    env = at_home(task, lift="held")
    middle = middle_of_grip(env)  # 1 cm below Pick's goal height
    if task == "FrankaMove":
        env.engine.mocap("goal")[0] = middle
    place_cube(env, 0, middle)
    outcome = env.world.task.evaluate()
    assert outcome.met[0]
    assert outcome.terms["goal_bonus"][0] == 0.5


@pytest.mark.parametrize(("task", "radius"), [("FrankaMove", 0.04), ("KukaMove", 0.0675)])
def test_move(task: str, radius: float) -> None:
    env = at_home(task)
    goal = np.array([0.45, 0.1, 0.65])
    env.engine.mocap("goal")[:] = goal
    place_cube(env, 0, goal - (radius - 1e-4, 0, 0))
    place_cube(env, 1, goal - (0, radius + 1e-4, 0))
    outcome = env.world.task.evaluate()
    np.testing.assert_array_equal(outcome.met, [True, False])
    expected = [1 / (0.04 + radius - 1e-4), 1 / (0.04 + radius + 1e-4)]
    np.testing.assert_allclose(outcome.terms["goal_distance"], expected)
    bonus_within = 0.04 if task == "FrankaMove" else 0.06
    assert outcome.terms["goal_bonus"][0] == 0.5 * (radius - 1e-4 <= bonus_within)
    np.testing.assert_allclose(env.observe()[0, -6:-3], goal, atol=1e-6)
    np.testing.assert_allclose(env.observe()[0, -3:], (radius - 1e-4, 0, 0), atol=1e-6)


def pull_drawer(env: VectorManipulation, row: int, opening: float) -> None:
    env.engine.qpos[row, env.engine.joint_columns(["drawer"])[0]] = opening
    env.engine.refresh()


def bring_handle_to(env: VectorManipulation, row: int, place: np.ndarray) -> None:
    env.engine.mocap("cabinet")[row] += place - env.engine.site("handle")[row]
    env.engine.refresh()


def test_franka_cabinet() -> None:
    env = at_home("FrankaCabinet")
    grip = middle_of_grip(env)
    for row, opening in enumerate((0.35, 0.31)):
        pull_drawer(env, row, opening)
        bring_handle_to(env, row, grip)
    outcome = env.world.task.evaluate()
    terms = outcome.terms
    np.testing.assert_allclose(terms["handle_distance"], 2 / (0.016 + HOME_GRIP), rtol=1e-6)
    np.testing.assert_array_equal(terms["handle_bonus"], [0.5, 0.5])
    np.testing.assert_array_equal(terms["open_bonus"], [0.5, 0.5])
    np.testing.assert_allclose(terms["goal_distance"], [0.35, 0.31])
    np.testing.assert_allclose(terms["open_pose_bonus"], [0.35, 0.31])  # 2 x 0.5 x 1 x opening
    np.testing.assert_array_equal(terms["goal_bonus"], [0.5, 0.5])
    np.testing.assert_array_equal(outcome.met, [True, False])
    np.testing.assert_allclose(env.observe()[:, -1], [-0.03, 0.01], atol=1e-6)

    # Let go, above the handle: as far out, but no longer held.
    bring_handle_to(env, 0, grip - (0, 0, 0.1))
    outcome = env.world.task.evaluate()
    assert outcome.terms["handle_bonus"][0] == 0.0
    assert outcome.terms["open_pose_bonus"][0] == 0.0
    assert not outcome.met[0]


@pytest.mark.parametrize("hold", [True, False])
def test_how_far_the_drawer_must_come_and_whether_held_can_be_chosen(hold: bool) -> None:
    env = at_home("FrankaCabinet", opening=0.1, hold=hold)
    for row, opening in enumerate((0.101, 0.081)):
        pull_drawer(env, row, opening)
        bring_handle_to(env, row, middle_of_grip(env) - (0, 0, 0.1))  # out of the hand's reach
    outcome = env.world.task.evaluate()
    np.testing.assert_array_equal(outcome.terms["goal_bonus"], [0.5, 0.5])  # from 8 cm on
    np.testing.assert_array_equal(outcome.met, [not hold, False])
    np.testing.assert_allclose(env.observe()[:, -1], [-0.001, 0.019], atol=1e-6)
    pull_drawer(env, 1, 0.079)
    assert env.world.task.evaluate().terms["goal_bonus"][1] == 0.0
    bring_handle_to(env, 0, middle_of_grip(env))
    assert env.world.task.evaluate().met[0]


def test_kuka_cabinet() -> None:
    env = at_home("KukaCabinet")
    index, middle, ring, thumb = env.world.task.fingers()[0]
    pull_drawer(env, 0, 0.33)
    bring_handle_to(env, 0, thumb)
    pull_drawer(env, 1, 0.009)
    outcome = env.world.task.evaluate()
    assert outcome.terms["thumb_distance"][0] == pytest.approx(1 / 0.048)
    apart = [np.linalg.norm(finger - thumb) for finger in (index, middle, ring)]
    assert outcome.terms["finger_distance"][0] == pytest.approx(sum(1 / (0.04 + d) for d in apart))
    np.testing.assert_array_equal(outcome.terms["open_bonus"], [0.5, 0.0])
    np.testing.assert_array_equal(outcome.terms["goal_bonus"], [0.5, 0.0])
    np.testing.assert_array_equal(outcome.met, [True, False])  # the hand need not hold the handle
    assert not outcome.fallen.any()


@pytest.mark.parametrize("task", ["FrankaReach", "KukaReach"])
def test_proprioception_is_scaled_by_limits_and_by_a_tenth(task: str) -> None:
    env = at_home(task, observation="robot")
    positions, velocities = env.engine.joint_columns(env.robot.joints)
    joints = len(env.robot.joints)
    low, high = np.array([env.model.joint(name).range for name in env.robot.joints]).T
    env.engine.qpos[0, positions] = low
    env.engine.qpos[1, positions] = (low + 3 * high) / 4
    env.engine.qvel[1, velocities] = 2.0
    observation = env.observe()
    np.testing.assert_allclose(observation[0, :joints], -1.0, atol=1e-6)
    np.testing.assert_allclose(observation[1, :joints], 0.5, atol=1e-6)
    np.testing.assert_allclose(observation[1, joints:], 0.2, atol=1e-6)
