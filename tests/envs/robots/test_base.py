"""The robots' MJCF files."""

from __future__ import annotations

import pytest

from mimex.envs.catalog import ROBOTS, robot_named


@pytest.mark.parametrize("name", ROBOTS)
def test_a_robot_file_compiles_and_has_all_names_of_the_robot(name: str) -> None:
    robot = robot_named(name)
    model = robot.load().compile()
    assert [model.actuator(i).name for i in range(model.nu)] == list(robot.joints)
    for joint, home in zip(robot.joints, robot.home, strict=True):
        low, high = model.joint(joint).range
        assert low <= home <= high
        assert model.actuator(joint).trnid[0] == model.joint(joint).id
        assert model.actuator(joint).ctrlrange == pytest.approx((low, high), abs=1e-12)
    for site in (*robot.fingers, *((robot.palm,) if robot.palm else ())):
        model.site(site)
    for body in robot.arm_bodies:
        model.body(body)
    model.camera(robot.wrist_camera)
    assert len(robot.speeds) == len(robot.joints)
    assert len(robot.fingers) == {"gripper": 2, "hand": 4}[robot.end_effector]
