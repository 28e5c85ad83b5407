import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from mimex.envs.experts.kinematics import Kinematics
from mimex.envs.robots.franka import FRANKA

HOME = np.array(FRANKA.home[:7])


@pytest.fixture
def hands() -> Kinematics:
    return Kinematics(FRANKA, 3, "panda_hand", (0.0, 0.0, 0.1034), 7)


def test_pose_of_the_stretched_arm(hands: Kinematics) -> None:
    # All joints 0: the hand's frame at (0.912, 0, 0.926), pointing down.
    point, rotation = hands.pose(np.zeros((3, 7)))
    np.testing.assert_allclose(point, np.tile((0.912, 0.0, 0.926 - 0.1034), (3, 1)), atol=1e-9)
    np.testing.assert_allclose(rotation.apply([0.0, 0.0, 1.0])[0], (0.0, 0.0, -1.0), atol=1e-9)


def test_small_steps_move_and_turn_the_hand_by_the_requested_amount(hands: Kinematics) -> None:
    joints = np.tile(HOME, (3, 1))
    shift = 0.002 * np.eye(3)
    turn = 0.004 * np.eye(3)[::-1]
    before, turned_before = hands.pose(joints)
    after, turned_after = hands.pose(hands.step(joints, shift, turn, 1.0, HOME))
    np.testing.assert_allclose(after - before, shift, atol=5e-4)
    rotated = (turned_after * turned_before.inv()).as_rotvec()
    np.testing.assert_allclose(rotated, turn, atol=1e-3)


def test_many_steps_reach_a_pose_each(hands: Kinematics) -> None:
    joints = np.tile(HOME, (3, 1))
    goals = np.array([[0.5, 0.1, 0.6], [0.6, -0.2, 0.5], [0.55, 0.0, 0.55]])
    upright = Rotation.from_matrix([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]])
    for _ in range(300):
        point, rotation = hands.pose(joints)
        shift = np.clip(goals - point, -0.01, 0.01)
        turn = np.clip((upright * rotation.inv()).as_rotvec(), -0.05, 0.05)
        joints = hands.step(joints, shift, turn, 0.5, HOME)
    point, rotation = hands.pose(joints)
    np.testing.assert_allclose(point, goals, atol=2e-3)
    assert (upright * rotation.inv()).magnitude().max() < 0.03


def test_with_rotation_weight_0_the_rotation_is_ignored(hands: Kinematics) -> None:
    joints = np.tile(HOME, (3, 1))
    still = np.zeros((3, 3))
    moved = hands.step(joints, still, np.ones((3, 3)), 0.0, HOME)
    np.testing.assert_allclose(moved, joints, atol=1e-12)


def test_joint_limits_are_kept(hands: Kinematics) -> None:
    joints = np.tile(HOME, (3, 1))
    for _ in range(200):
        joints = hands.step(joints, np.full((3, 3), 0.05), np.zeros((3, 3)), 0.0, HOME)
    assert (joints >= hands.lower).all()
    assert (joints <= hands.upper).all()


def test_posture_is_approached_without_moving_the_hand(hands: Kinematics) -> None:
    joints = np.tile(HOME, (3, 1))
    posture = HOME + np.array([0.3, 0.0, -0.3, 0.0, 0.0, 0.0, 0.0])
    start, _ = hands.pose(joints)
    begin = np.linalg.norm(joints - posture, axis=1)
    for _ in range(50):
        point, _ = hands.pose(joints)
        joints = hands.step(joints, start - point, np.zeros((3, 3)), 0.0, posture)
    point, _ = hands.pose(joints)
    np.testing.assert_allclose(point, start, atol=3e-3)
    assert (np.linalg.norm(joints - posture, axis=1) < 0.8 * begin).all()
