import mujoco
import numpy as np
import pytest

from mimex.envs import scene
from mimex.envs.robots.franka import FRANKA
from mimex.envs.robots.kuka_allegro import KUKA


@pytest.fixture
def cabinet() -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = scene.build(FRANKA, "Cabinet").compile()
    data = mujoco.MjData(model)
    for joint, position in zip(FRANKA.joints, FRANKA.home, strict=True):
        data.joint(joint).qpos = position
        data.actuator(joint).ctrl = position
    mujoco.mj_forward(model, data)
    return model, data


def test_drawer_and_handle_have_the_published_positions(cabinet) -> None:
    model, data = cabinet
    # (0.05, 0, 0.45) + (0.0515, 0, 0.3172), and + (0.305, 0, 0.01).
    np.testing.assert_allclose(data.body("drawer").xpos, (0.1015, 0.0, 0.7672), atol=1e-12)
    np.testing.assert_allclose(data.site("handle").xpos, (0.4065, 0.0, 0.7772), atol=1e-12)
    np.testing.assert_allclose(model.joint("drawer").range, (0.0, 0.4))
    assert model.joint("drawer").damping[0] == 10.0
    assert model.body("box0").mass[0] == pytest.approx(0.08**3 * 400)


def test_the_handle_bar_passes_through_the_handle_point(cabinet) -> None:
    model, data = cabinet
    start = np.add(data.site("handle").xpos, (0.1, 0.0, 0.0))
    geom = np.zeros(1, np.int32)
    distance = mujoco.mj_ray(model, data, start, np.array([-1.0, 0, 0]), None, 1, -1, geom)
    assert model.body(model.geom_bodyid[geom[0]]).name == "drawer"
    assert distance == pytest.approx(0.1 - 0.009)


def test_moving_the_cabinet_moves_its_drawer(cabinet) -> None:
    model, data = cabinet
    shift = np.array([0.05, -0.07, -0.05])
    data.mocap_pos[model.body("cabinet").mocapid[0]] += shift
    for i in range(4):
        data.joint(f"box{i}").qpos[:3] += shift
    for _ in range(60):
        mujoco.mj_step(model, data)
    np.testing.assert_allclose(data.site("handle").xpos, (0.4565, -0.07, 0.7272), atol=1e-3)
    assert abs(data.joint("drawer").qpos[0]) < 1e-3


def test_a_steady_pull_opens_the_drawer_fully_with_its_boxes(cabinet) -> None:
    model, data = cabinet
    before = [data.joint(f"box{i}").qpos[0] for i in range(4)]
    data.joint("panda_joint1").qpos = data.actuator("panda_joint1").ctrl = -2.0  # out of the way
    data.joint("drawer").qfrc_applied[:] = 5.0  # N
    for _ in range(180):
        mujoco.mj_step(model, data)
    assert data.joint("drawer").qpos[0] == pytest.approx(0.4, abs=0.01)
    for i in range(4):
        x, y, z = data.joint(f"box{i}").qpos[:3]
        assert x - before[i] > 0.3  # came along
        assert abs(z - data.body("drawer").xpos[2]) < 0.06  # still in the drawer
        assert abs(y) < 0.3


def test_cabinet_and_drawer_do_not_touch_each_other(cabinet) -> None:
    model, data = cabinet
    for opening in np.linspace(0.0, 0.4, 9):
        data.joint("drawer").qpos[:] = opening
        mujoco.mj_forward(model, data)
        for contact in data.contact:
            pair = {model.body(model.geom_bodyid[g]).name for g in contact.geom}
            assert pair != {"cabinet", "drawer"}


def test_sparse_jacobians_give_the_hand_the_step_of_dense_ones() -> None:
    sparse = scene.build(KUKA, "Cabinet").compile()
    dense = scene.build(KUKA, "Cabinet").compile()
    dense.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    assert mujoco.mj_isSparse(sparse)
    assert not mujoco.mj_isSparse(dense)
    data, same = mujoco.MjData(sparse), mujoco.MjData(dense)
    for joint, position in zip(KUKA.joints, KUKA.home, strict=True):
        data.joint(joint).qpos = data.actuator(joint).ctrl = position
    full = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(sparse, full))
    generator, most = np.random.default_rng(0), 0
    for _ in range(200):
        data.ctrl[:] += 0.1 * generator.normal(size=len(KUKA.joints))
        mujoco.mj_getState(sparse, data, state, full)
        mujoco.mj_setState(dense, same, state, full)
        mujoco.mj_step(sparse, data)
        mujoco.mj_step(dense, same)
        np.testing.assert_allclose(data.qvel, same.qvel, atol=1e-9)  # m/s, rad/s
        most = max(most, data.ncon)
    assert most > 16  # the boxes have four contacts each, and the hand sometimes one
