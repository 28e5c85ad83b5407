import mujoco
import numpy as np
import pytest

from mimex.envs import scene
from mimex.envs.robots.franka import FRANKA


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scene.build(FRANKA, "Pick").compile()


def posed(model: mujoco.MjModel, joints: dict[str, float]) -> mujoco.MjData:
    data = mujoco.MjData(model)
    for joint, position in joints.items():
        data.joint(joint).qpos = position
    mujoco.mj_forward(model, data)
    return data


def test_stretched_upwards_the_flange_height_matches_the_data_sheet(model) -> None:
    # All joints 0: heights 0.333 + 0.316 + 0.384 - 0.107 above the base, 0.088 in front of it
    # (the elbow's two offsets of 0.0825 cancel); the robot looks along -x from x = 1.
    data = posed(model, {})
    np.testing.assert_allclose(data.body("panda_hand").xpos, (0.912, 0.0, 0.926), atol=1e-9)


def test_grasp_points_lie_between_the_finger_pads(model) -> None:
    data = posed(model, {"panda_finger_joint1": 0.03, "panda_finger_joint2": 0.01})
    hand = data.body("panda_hand")
    matrix = hand.xmat.reshape(3, 3)
    left, right = (matrix.T @ (data.site(name).xpos - hand.xpos) for name in FRANKA.fingers)
    np.testing.assert_allclose(left, (0.0, 0.03, 0.1034), atol=1e-9)
    np.testing.assert_allclose(right, (0.0, -0.01, 0.1034), atol=1e-9)


def test_wrist_camera_looks_along_the_fingers(model) -> None:
    data = posed(model, {})
    hand, camera = data.body("panda_hand"), data.camera("wrist")
    matrix = hand.xmat.reshape(3, 3)
    np.testing.assert_allclose(matrix.T @ (camera.xpos - hand.xpos), (0.04, 0.0, 0.045), atol=1e-9)
    looking = -camera.xmat.reshape(3, 3)[:, 2]
    np.testing.assert_allclose(matrix.T @ looking, (0.0, 0.0, 1.0), atol=1e-9)


def test_the_mass_of_the_arm_matches_the_data_sheet(model) -> None:
    links = [f"panda_link{i}" for i in range(8)]
    assert 16.0 < sum(model.body(link).mass[0] for link in links) < 20.0  # about 18 kg
    assert 0.5 < model.body("panda_hand").mass[0] < 0.9  # about 0.7 kg


def test_home_is_within_the_limits_and_torques_are_limited(model) -> None:
    for joint, home in zip(FRANKA.joints, FRANKA.home, strict=True):
        low, high = model.joint(joint).range
        assert low < home < high
    limits = [model.actuator(joint).forcerange[1] for joint in FRANKA.joints]
    assert limits == [87.0] * 4 + [12.0] * 3 + [200.0] * 2


def test_the_servos_reach_their_targets(model) -> None:
    data = posed(model, dict(zip(FRANKA.joints, FRANKA.home, strict=True)))
    target = np.array(FRANKA.home) + np.array([0.3, -0.2, 0.1, -0.3, 0.2, -0.1, 0.3, -0.02, -0.03])
    data.ctrl[:] = target
    for _ in range(180):
        mujoco.mj_step(model, data)
    np.testing.assert_allclose(data.qpos[:9], target, atol=1e-3)


def test_closed_fingers_hold_the_cube_against_gravity_and_shaking(model) -> None:
    ready = dict(zip(FRANKA.joints, (0, -0.4, 0, -2.3, 0, 1.9, 0.785, 0.03, 0.03), strict=True))
    data = posed(model, ready)
    point = np.mean([data.site(name).xpos for name in FRANKA.fingers], axis=0)
    data.joint("cube").qpos[:3] = point
    quat = data.joint("cube").qpos[3:]
    mujoco.mju_mat2Quat(quat, data.body("panda_hand").xmat)
    data.ctrl[:] = [*list(ready.values())[:7], 0.0, 0.0]
    for step in range(300):  # 5 s
        data.ctrl[3] = -2.3 + 0.1 * np.sin(step / 5)
        mujoco.mj_step(model, data)
    held = np.mean([data.site(name).xpos for name in FRANKA.fingers], axis=0)
    assert np.linalg.norm(data.site("cube").xpos - held) < 0.012
