"""Scenes of both robots: names, positions, masses and contacts."""

import mujoco
import numpy as np
import pytest

from mimex.envs import scene
from mimex.envs.robots.base import Robot
from mimex.envs.robots.franka import FRANKA
from mimex.envs.robots.kuka_allegro import KUKA

TASKS = ("Reach", "Cabinet", "Pick", "Move")
SCENES = [
    pytest.param(robot, task, id=f"{robot.name}-{task}")
    for robot in (FRANKA, KUKA)
    for task in TASKS
]


def at_home(robot: Robot, task: str, **options: float) -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = scene.build(robot, task, **options).compile()
    data = mujoco.MjData(model)
    for joint, position in zip(robot.joints, robot.home, strict=True):
        data.joint(joint).qpos = position
        data.actuator(joint).ctrl = position
    mujoco.mj_forward(model, data)
    return model, data


def names(model: mujoco.MjModel, kind: str, count: int) -> set[str]:
    return {getattr(model, kind)(i).name for i in range(count)}


@pytest.mark.parametrize(("robot", "task"), SCENES)
def test_every_moving_body_has_mass_and_inertia(robot: Robot, task: str) -> None:
    model = scene.build(robot, task).compile()
    moving = np.flatnonzero(model.body_dofnum > 0)
    assert len(moving) >= len(robot.joints)
    assert (model.body_mass[moving] > 0.001).all()
    assert (model.body_inertia[moving] > 0).all()
    # A rigid body's principal inertias obey the triangle inequality.
    low, middle, high = np.sort(model.body_inertia[moving], axis=1).T
    assert (high <= (low + middle) * (1 + 1e-6)).all()


@pytest.mark.parametrize(("robot", "task"), SCENES)
def test_all_documented_names_exist(robot: Robot, task: str) -> None:
    model = scene.build(robot, task).compile()
    bodies, sites = names(model, "body", model.nbody), names(model, "site", model.nsite)
    joints, cameras = names(model, "joint", model.njnt), names(model, "camera", model.ncam)
    sensors = names(model, "sensor", model.nsensor)
    assert ("table" in bodies) is (task != "Cabinet")
    assert ({"cabinet", "drawer", "box0", "box1", "box2", "box3"} <= bodies) is (task == "Cabinet")
    assert ({"drawer", "box3"} <= joints and "handle" in sites) is (task == "Cabinet")
    assert ("cube" in bodies & sites & joints) is (task in ("Pick", "Move"))
    assert ("goal" in bodies & sites) is (task in ("Reach", "Move"))
    assert {robot.wrist_camera, "video"} <= cameras
    assert {f"arm_force/{body}" for body in robot.arm_bodies} <= sensors
    assert [model.actuator(i).name for i in range(model.nu)] == list(robot.joints)
    assert set(robot.fingers) <= sites


def test_table_and_cube_have_the_published_positions() -> None:
    model, data = at_home(FRANKA, "Pick")
    table = model.geom(model.body("table").geomadr[0])
    np.testing.assert_allclose(data.body("table").xpos, (0.5, 0.0, 0.2))
    np.testing.assert_allclose(table.size, (0.3, 0.5, 0.2))
    np.testing.assert_allclose(data.site("cube").xpos, (0.5, 0.0, 0.4225))
    assert model.body("cube").mass[0] == pytest.approx(0.045**3 * 1000)
    assert scene.build(KUKA, "Pick").compile().body("cube").mass[0] == pytest.approx(0.216)


@pytest.mark.parametrize(("robot", "task"), SCENES)
def test_the_robot_has_no_contacts_at_home(robot: Robot, task: str) -> None:
    model, data = at_home(robot, task)
    for _ in range(5):
        mujoco.mj_step(model, data)
    own = {*names(model, "body", model.nbody)} - {"world", "table", "cabinet", "drawer", "cube"}
    own -= {f"box{i}" for i in range(4)}
    touched = {model.body(model.geom_bodyid[g]).name for c in data.contact for g in c.geom}
    assert not touched & own


@pytest.mark.parametrize(("robot", "task"), SCENES)
def test_without_actions_nothing_moves(robot: Robot, task: str) -> None:
    model, data = at_home(robot, task)
    before = data.qpos.copy()
    for _ in range(120):  # 2 s
        mujoco.mj_step(model, data)
    # The hand of the Kuka may rest against joint limits; 1 mrad and 1 mm are far below noise.
    np.testing.assert_allclose(data.qpos, before, atol=1e-3)
    assert data.warning.number.sum() == 0


def test_gravity_pulls_objects_but_not_the_robot() -> None:
    model, data = at_home(FRANKA, "Pick")
    data.joint("cube").qpos[2] = 1.0
    arm = data.qpos[:9].copy()
    for _ in range(30):
        mujoco.mj_step(model, data)
    # 0.5 s of free fall: 1.2 m without the table; it lies on the table at 0.4225 by then.
    assert data.site("cube").xpos[2] < 0.6
    np.testing.assert_allclose(data.qpos[:9], arm, atol=1e-9)


def test_the_goal_is_visual_only() -> None:
    model, data = at_home(FRANKA, "Move")
    data.mocap_pos[model.body("goal").mocapid[0]] = data.joint("cube").qpos[:3]
    mujoco.mj_forward(model, data)
    pairs = {model.body(model.geom_bodyid[g]).name for c in data.contact for g in c.geom}
    assert "goal" not in pairs


def test_time_step_follows_control_rate_and_substeps() -> None:
    assert scene.build(FRANKA, "Reach").compile().opt.timestep == pytest.approx(1 / 60)
    spec = scene.build(FRANKA, "Reach", control_hz=30.0, substeps=4)
    assert spec.compile().opt.timestep == pytest.approx(1 / 120)


def test_arm_force_measures_a_push_on_the_arm_only() -> None:
    model, data = at_home(FRANKA, "Pick")
    for _ in range(60):
        mujoco.mj_step(model, data)
    assert np.abs(data.sensordata).max() == 0.0  # the cube presses on the table, not on the arm
    data.joint("cube").qpos[:3] = np.add(data.body("panda_link5").xpos, (0.0, 0.0, 0.06))
    mujoco.mj_step(model, data)
    forces = [np.linalg.norm(data.sensor(f"arm_force/{b}").data) for b in FRANKA.arm_bodies]
    assert max(forces) > 1.0


def test_an_unknown_task_raises_with_its_name() -> None:
    with pytest.raises(ValueError, match=r"task is 'stack'.*Reach"):
        scene.build(FRANKA, "stack")
