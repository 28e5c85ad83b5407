import math

import mujoco
import numpy as np
import pytest

from mimex.envs import scene
from mimex.envs.robots.kuka_allegro import KUKA

SCALE = 0.9


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scene.build(KUKA, "Reach").compile()


def posed(model: mujoco.MjModel, joints: np.ndarray) -> mujoco.MjData:
    data = mujoco.MjData(model)
    for name, position in zip(KUKA.joints, joints, strict=True):
        data.joint(name).qpos = position
    data.ctrl[:] = joints
    mujoco.mj_forward(model, data)
    return data


def touching(model: mujoco.MjModel, data: mujoco.MjData) -> set[frozenset[str]]:
    """Return the pairs of bodies in contact."""
    bodies = [
        [model.body(int(model.geom_bodyid[geom])).name for geom in contact.geom]
        for contact in data.contact
    ]
    return {frozenset(pair) for pair in bodies}


def limits(model: mujoco.MjModel) -> np.ndarray:
    return np.array([model.joint(name).range for name in KUKA.joints])


# Kinematics.


def test_stretched_upwards_the_middle_finger_points_up(model) -> None:
    # All joints 0. The flange is 0.15 + 0.19 + 0.21 + 0.19 + 0.21 + 0.19 + 0.081 + 0.071 = 1.292
    # above the base. The hand's frame lies (0.008219, -0.02063, 0.08086) from it, with its x up, y
    # and z along the mount's -y and x; the middle finger's root at (0.0537375, 0.0087771, -0.0113)
    # in it, its tip 0.054 + 0.0384 + 0.045 further along x and 0.01 along z. The robot looks along
    # -x from x = 1, so the mount's x and y are the world's -x and -y.
    data = posed(model, np.zeros(23))
    forward = 0.008219 - 0.0113 + 0.01
    left = 0.02063 + 0.0087771
    up = 1.292 + 0.08086 + 0.0537375 + 0.1374
    expected = (1.0 - SCALE * forward, SCALE * left, SCALE * up)
    # The published frames of the hand are rounded to 1e-4 rad.
    np.testing.assert_allclose(data.site("middle_grasp").xpos, expected, atol=1e-4)


def test_the_flange_position_at_home_matches_plane_geometry(model) -> None:
    # Joints 2, 4, 6 bend the arm in the plane x, z: its segments of 0.4, 0.4 and 0.152 m lean
    # from the vertical by -0.4, -0.4 + 1 and -0.4 + 1 + 1 rad, from a shoulder at 0.34 m.
    data = posed(model, np.array(KUKA.home))
    leans = np.array([-0.4, 0.6, 1.6])
    segments = np.array([0.4, 0.4, 0.152])
    forward = float(segments @ np.sin(leans))
    up = 0.34 + float(segments @ np.cos(leans))
    expected = (1.0 - SCALE * forward, 0.0, SCALE * up)
    np.testing.assert_allclose(data.body("iiwa7_link_ee").xpos, expected, atol=1e-9)


def test_at_home_the_palm_faces_down_and_the_fingers_forward(model) -> None:
    axes = posed(model, np.array(KUKA.home)).body("palm_link").xmat.reshape(3, 3)
    np.testing.assert_allclose(axes[:, 0], (-1.0, 0.0, 0.0), atol=0.03)  # 1.6 rad is 0.03 too far
    np.testing.assert_allclose(axes[:, 2], (0.0, 0.0, -1.0), atol=0.03)


def test_fingers_and_thumb_curl_towards_the_palm_side(model) -> None:
    straight = np.array(KUKA.home)
    bent = straight.copy()
    bent[[8, 12, 16]] = 1.0
    bent[19:21] = (1.4, 0.6)  # the thumb stands up and leans over the palm
    before, after = posed(model, straight), posed(model, bent)
    normal = before.body("palm_link").xmat.reshape(3, 3)[:, 2]
    for name in KUKA.fingers:
        assert (after.site(name).xpos - before.site(name).xpos) @ normal > 0.05


def test_the_wrist_camera_looks_along_the_fingers_and_is_upright_at_home(model) -> None:
    data = posed(model, np.array(KUKA.home))
    camera = data.camera("wrist").xmat.reshape(3, 3)
    fingers = data.body("palm_link").xmat.reshape(3, 3)[:, 0]
    assert -camera[:, 2] @ fingers == pytest.approx(1.0, abs=1e-4)
    assert camera[2, 1] == pytest.approx(1.0, abs=1e-3)
    mount = data.body("allegro_mount")
    offset = mount.xmat.reshape(3, 3).T @ (data.camera("wrist").xpos - mount.xpos)
    np.testing.assert_allclose(offset, (0.045, 0.0, 0.018), atol=1e-9)


# The robot as data.


def test_joints_come_in_the_published_order_with_the_published_limits(model) -> None:
    assert len(KUKA.joints) == len(KUKA.home) == len(KUKA.speeds) == 23
    assert KUKA.joints[:2] == ("iiwa7_joint_1", "iiwa7_joint_2")
    assert [KUKA.joints[i] for i in (7, 11, 15, 19, 22)] == [
        "index_joint_0",
        "middle_joint_0",
        "ring_joint_0",
        "thumb_joint_0",
        "thumb_joint_3",
    ]
    degrees = np.degrees(limits(model))
    np.testing.assert_allclose(degrees[[0, 1, 6]], [(-170, 170), (-120, 120), (-175, 175)])
    np.testing.assert_allclose(degrees[19], (16, 90), atol=0.01)


def test_home_is_the_published_pose_within_the_limits(model) -> None:
    low, high = limits(model).T
    home = np.array(KUKA.home)
    assert ((low <= home) & (home <= high)).all()
    np.testing.assert_array_equal(home[:7], (0, -0.4, 0, -1, 0, 1, 0))
    assert home[19] == pytest.approx(0.279, abs=1e-3)
    assert np.count_nonzero(home[7:]) == 1


def test_drives_have_the_published_torque_limits(model) -> None:
    torques = [float(model.actuator(name).forcerange[1]) for name in KUKA.joints]
    assert torques == [320, 320, 176, 176, 110, 40, 40, *[0.7] * 16]


def test_all_names_that_tasks_use_exist(model) -> None:
    sites = {model.site(i).name for i in range(model.nsite)}
    bodies = {model.body(i).name for i in range(model.nbody)}
    assert {*KUKA.fingers, KUKA.palm} <= sites
    assert set(KUKA.arm_bodies) <= bodies
    assert [name.split("_")[0] for name in KUKA.fingers] == ["index", "middle", "ring", "thumb"]
    assert model.camera(KUKA.wrist_camera).fovy[0] == pytest.approx(104.95)


# Masses.


def test_masses_are_the_published_ones_at_nine_tenths_of_the_size(model) -> None:
    arm = sum(float(model.body(name).mass[0]) for name in KUKA.arm_bodies)
    published = 5.0 + 3.4525 + 3.4821 + 4.05623 + 3.4822 + 2.1633 + 2.3466 + 3.129  # kg
    assert arm == pytest.approx(published * SCALE**3, rel=1e-9)
    finger = sum(float(model.body(f"index_link_{i}").mass[0]) for i in range(4))
    assert finger == pytest.approx((0.005 + 0.125164 + 0.131691 + 0.0211922) * SCALE**3, rel=1e-9)


def test_every_inertia_is_physical(model) -> None:
    links = [model.joint(name).bodyid[0] for name in KUKA.joints]
    assert len(set(links)) == 23
    inertia = np.sort(model.body_inertia[links], axis=1)
    assert (inertia > 0).all()
    assert (inertia[:, 0] + inertia[:, 1] >= inertia[:, 2]).all()


def test_inertias_computed_from_shapes_have_the_size_of_a_finger_link(model) -> None:
    # A rod of 0.13 kg and 5 cm has 0.13 * 0.05**2 / 12 = 2.7e-5 kg m2 across, at full size.
    across = model.body("middle_link_2").inertia.max()
    assert 3e-6 < across < 3e-5


# Physics.


def test_there_are_no_contacts_at_home(model) -> None:
    assert posed(model, np.array(KUKA.home)).ncon == 0


def test_the_robot_holds_its_home_pose(model) -> None:
    data = posed(model, np.array(KUKA.home))
    mujoco.mj_step(model, data, nstep=120)
    np.testing.assert_allclose(data.ctrl - data.actuator_length, 0.0, atol=1e-6)


def test_a_finger_reaches_its_target_without_oscillating(model) -> None:
    data = posed(model, np.array(KUKA.home))
    data.ctrl[KUKA.joints.index("middle_joint_1")] = 1.0
    mujoco.mj_step(model, data, nstep=30)  # 0.5 s
    assert data.joint("middle_joint_1").qpos[0] == pytest.approx(1.0, abs=0.01)
    mujoco.mj_step(model, data, nstep=30)
    assert abs(data.joint("middle_joint_1").qvel[0]) < 1e-3


def test_a_fist_closes_onto_the_palm_and_the_thumb_onto_a_finger(model) -> None:
    data = posed(model, np.array(KUKA.home))
    data.ctrl[7:] = (*(0.0, 1.6, 1.6, 1.6) * 3, 1.4, 0.5, 0.8, 0.8)
    mujoco.mj_step(model, data, nstep=180)
    assert touching(model, data) == {
        frozenset({"index_link_3", "palm_link"}),
        frozenset({"middle_link_3", "palm_link"}),
        frozenset({"ring_link_3", "palm_link"}),
        frozenset({"middle_link_3", "thumb_link_3"}),
    }
    # At full torque the fingers penetrate by no more than rubber would.
    assert min(contact.dist for contact in data.contact) > -0.002


def test_a_folded_arm_does_not_collide_with_itself(model) -> None:
    folded = np.array(KUKA.home)
    folded[[1, 3, 5]] = (-1.9, 2.0, 2.0)
    data = posed(model, folded)
    on_itself = [pair for pair in touching(model, data) if pair <= set(KUKA.arm_bodies)]
    assert on_itself == []


def test_an_arm_link_pushed_onto_the_table_reports_the_force(model) -> None:
    data = posed(model, np.array(KUKA.home))
    data.ctrl[:7] = (0.0, 1.9, 0.0, 0.0, 0.0, 0.0, 0.0)
    felt = 0.0
    for _ in range(120):
        mujoco.mj_step(model, data)
        forces = [data.sensor(f"arm_force/{name}").data for name in KUKA.arm_bodies]
        felt = max(felt, max(math.hypot(*force) for force in forces))
    assert felt > 1.0


def test_random_actions_stay_finite_slow_and_within_the_limits(model) -> None:
    generator = np.random.default_rng(0)
    data = posed(model, np.array(KUKA.home))
    low, high = limits(model).T
    for _ in range(300):  # 5 s
        step = generator.normal(size=23) * 7.5 / 60  # published control law, speed 1
        data.ctrl[:] = np.clip(data.ctrl + step, low, high)
        mujoco.mj_step(model, data)
        assert np.isfinite(data.qpos).all()
        assert np.abs(data.qvel).max() < 30.0  # rad/s
        assert (data.actuator_length > low - 0.1).all()
        assert (data.actuator_length < high + 0.1).all()
    assert all(warning.number == 0 for warning in data.warning)
