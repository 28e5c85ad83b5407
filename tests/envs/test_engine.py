"""The engine against facts of mechanics."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from mimex.envs.engine import Engine

# A 2 kg ball that rests on the floor, and a servo that turns a light rod.
XML = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body name="ball" pos="0 0 0.1"><freejoint name="ball"/>
      <geom type="sphere" size="0.1" mass="2"/><site name="ball"/></body>
    <body name="rod" pos="0 0 1" gravcomp="1"><joint name="rod" damping="1"/>
      <geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.01" mass="0.1" contype="0"
        conaffinity="0"/><site name="tip" pos="0.5 0 0"/></body>
    <body name="mark" mocap="true" pos="1 2 3"/>
  </worldbody>
  <actuator><position name="rod" joint="rod" kp="20"/></actuator>
  <sensor><contact name="arm_force/ball" body1="ball" data="force" reduce="netforce"/></sensor>
</mujoco>
"""


@pytest.fixture
def engine() -> Engine:
    return Engine(mujoco.MjModel.from_xml_string(XML), num_envs=3, threads=1)


def test_a_resting_ball_presses_with_its_weight(engine: Engine) -> None:
    for _ in range(200):
        failed = engine.step(np.zeros((3, 1)))
    np.testing.assert_allclose(engine.arm_force(), 2.0 * 9.81, rtol=1e-3)
    assert not failed.any()


def test_sites_describe_the_state_after_the_step(engine: Engine) -> None:
    columns, _ = engine.joint_columns(["rod"])
    tip = engine.site("tip")
    engine.step(np.array([[0.0], [0.4], [-0.4]]))
    angle = engine.qpos[:, columns][:, 0]
    assert angle[1] > 1e-3
    np.testing.assert_allclose(tip[:, 0], 0.5 * np.cos(angle), atol=1e-12)
    np.testing.assert_allclose(tip[:, 1], 0.5 * np.sin(angle), atol=1e-12)
    both = engine.sites(engine.site_ids(["tip", "ball"]), np.array([2], np.int32))
    np.testing.assert_array_equal(both[0], [tip[2], engine.site("ball")[2]])


def test_refresh_follows_what_was_written(engine: Engine) -> None:
    positions, velocities = engine.joint_columns(["ball"])
    assert (positions, velocities) == (slice(0, 7), slice(0, 6))
    engine.qpos[1, positions] = (0.3, 0.4, 0.5, 1, 0, 0, 0)
    engine.refresh(np.array([1], np.int32))
    np.testing.assert_allclose(engine.site("ball")[1], (0.3, 0.4, 0.5))
    np.testing.assert_allclose(engine.site("ball")[0], (0.0, 0.0, 0.1))
    engine.reset(np.array([1], np.int32))
    engine.refresh()
    np.testing.assert_allclose(engine.site("ball")[1], (0.0, 0.0, 0.1))


def test_substeps_share_one_control_step() -> None:
    model = mujoco.MjModel.from_xml_string(XML)
    twice, once = Engine(model, 1, substeps=2), Engine(model, 1)
    target = np.array([[0.3]])
    twice.step(target)
    once.step(target)
    once.step(target)
    np.testing.assert_array_equal(twice.qpos, once.qpos)


@pytest.mark.parametrize("value", [np.nan, np.inf, 2e3])
def test_a_simulation_that_fails_is_named_and_can_be_put_back(
    engine: Engine, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to a file in the current folder
    engine.step(np.zeros((3, 1)))
    before = engine.state()
    engine.qvel[1, 2] = value
    np.testing.assert_array_equal(engine.step(np.zeros((3, 1))), [False, True, False])
    engine.restore(before, np.array([1], np.int32))
    assert np.isfinite(engine.qvel).all()
    assert not engine.step(np.zeros((3, 1))).any()


def test_state_before_is_where_the_step_started(engine: Engine) -> None:
    engine.step(np.zeros((3, 1)))
    before = engine.state()
    engine.step(np.ones((3, 1)))
    np.testing.assert_array_equal(engine.state_before(), before)


def test_a_restored_engine_continues_bit_for_bit(engine: Engine) -> None:
    targets = np.random.default_rng(0).normal(size=(40, 3, 1))
    for target in targets[:20]:
        engine.step(target)
    twin = Engine(engine.model, 3, threads=2)
    twin.restore(engine.state())
    for target in targets[20:]:
        engine.step(target)
        twin.step(target)
    np.testing.assert_array_equal(engine.state(), twin.state())


def test_errors_say_what_is_wrong(engine: Engine) -> None:
    with pytest.raises(ValueError, match="'ball' is not a mocap body"):
        engine.mocap("ball")
    with pytest.raises(ValueError, match="do not follow one another"):
        engine.joint_columns(["rod", "ball"])
    with pytest.raises(ValueError, match="same task and number of environments"):
        engine.restore(np.zeros((2, 2)))
    np.testing.assert_array_equal(engine.mocap("mark"), np.tile((1.0, 2.0, 3.0), (3, 1)))
