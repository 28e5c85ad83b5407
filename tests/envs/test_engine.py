"""The interface of engines, tested against known mechanics; every engine must pass."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from mimex.envs.arrays import to_numpy
from mimex.envs.engine import CpuEngine, Engine

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


KINDS = [
    "cpu",
    pytest.param("warp", marks=pytest.mark.slow),  # compiles for minutes the first time
    pytest.param("cuda", marks=pytest.mark.gpu),
]
TOLERANCE = {"cpu": 1e-12, "warp": 1e-6, "cuda": 1e-6}  # float64 and float32, m


def make(kind: str, num_envs: int = 3, substeps: int = 1, threads: int = 1) -> Engine:
    model = mujoco.MjModel.from_xml_string(XML)
    if kind == "cpu":
        return CpuEngine(model, num_envs, threads, substeps)
    pytest.importorskip("mujoco_warp", reason="needs pip install 'mimex[warp]'")
    from mimex.envs.warp_engine import WarpEngine

    return WarpEngine(model, num_envs, substeps, device="cpu" if kind == "warp" else "cuda:0")


def step(engine: Engine, targets: object) -> np.ndarray:
    return to_numpy(engine.step(engine.array(targets)))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def engine(kind: str) -> Engine:
    return make(kind)


def test_the_contact_force_of_a_resting_ball_is_its_weight(engine: Engine) -> None:
    for _ in range(200):
        failed = step(engine, np.zeros((3, 1)))
    np.testing.assert_allclose(to_numpy(engine.arm_force()), 2.0 * 9.81, rtol=1e-3)
    assert not failed.any()


def test_sites_describe_the_state_after_the_step(engine: Engine, kind: str) -> None:
    columns, _ = engine.joint_columns(["rod"])
    tip = engine.site("tip")
    step(engine, [[0.0], [0.4], [-0.4]])
    angle = to_numpy(engine.qpos[:, columns][:, 0])
    assert angle[1] > 1e-3
    np.testing.assert_allclose(to_numpy(tip[:, 0]), 0.5 * np.cos(angle), atol=TOLERANCE[kind])
    np.testing.assert_allclose(to_numpy(tip[:, 1]), 0.5 * np.sin(angle), atol=TOLERANCE[kind])
    both = to_numpy(engine.sites(engine.site_ids(["tip", "ball"]), np.array([2], np.int32)))
    np.testing.assert_array_equal(both[0], [to_numpy(tip[2]), to_numpy(engine.site("ball")[2])])


def test_refresh_applies_written_values(engine: Engine) -> None:
    positions, velocities = engine.joint_columns(["ball"])
    assert (positions, velocities) == (slice(0, 7), slice(0, 6))
    ball = engine.site("ball")
    engine.qpos[1, positions] = engine.array((0.3, 0.4, 0.5, 1, 0, 0, 0))
    engine.refresh(np.array([1], np.int32))
    np.testing.assert_allclose(to_numpy(ball[1]), (0.3, 0.4, 0.5), rtol=1e-6)
    np.testing.assert_allclose(to_numpy(ball[0]), (0.0, 0.0, 0.1), rtol=1e-6)
    engine.mocap("mark")[1] = 0.0
    engine.reset(np.array([1], np.int32))
    engine.refresh()
    np.testing.assert_allclose(to_numpy(ball[1]), (0.0, 0.0, 0.1), rtol=1e-6)
    np.testing.assert_array_equal(to_numpy(engine.mocap("mark")), np.tile((1.0, 2.0, 3.0), (3, 1)))


def test_refresh_keeps_the_forces_of_the_last_step(engine: Engine) -> None:
    for _ in range(3):
        step(engine, np.zeros((3, 1)))
    force = to_numpy(engine.arm_force()).copy()
    assert (force > 1.0).all()
    engine.restore(engine.state(), np.array([1], np.int32))
    np.testing.assert_array_equal(to_numpy(engine.arm_force()), force)


def test_substeps_share_one_control_step(kind: str) -> None:
    twice, once = make(kind, 1, substeps=2), make(kind, 1)
    step(twice, [[0.3]])
    step(once, [[0.3]])
    step(once, [[0.3]])
    np.testing.assert_array_equal(to_numpy(twice.qpos), to_numpy(once.qpos))


@pytest.mark.parametrize("value", [np.nan, np.inf, 2e3])
def test_a_failed_simulation_is_reported_and_can_be_restored(
    engine: Engine, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to a file in the current folder
    step(engine, np.zeros((3, 1)))
    before = engine.state()
    engine.qvel[1, 2] = value
    np.testing.assert_array_equal(step(engine, np.zeros((3, 1))), [False, True, False])
    engine.restore(before, np.array([1], np.int32))
    assert np.isfinite(to_numpy(engine.qvel)).all()
    assert not step(engine, np.zeros((3, 1))).any()


def test_state_before_is_where_the_step_started(engine: Engine) -> None:
    step(engine, np.zeros((3, 1)))
    before = engine.state()
    step(engine, np.ones((3, 1)))
    np.testing.assert_array_equal(engine.state_before(), before)


def test_a_restored_engine_continues_bit_for_bit(engine: Engine, kind: str) -> None:
    targets = np.random.default_rng(0).normal(size=(40, 3, 1))
    for target in targets[:20]:
        step(engine, target)
    twin = make(kind, threads=2)
    twin.restore(engine.state())
    for target in targets[20:]:
        step(engine, target)
        step(twin, target)
    np.testing.assert_array_equal(engine.state(), twin.state())


def test_a_state_transfers_between_engines_of_different_precision(
    engine: Engine, kind: str
) -> None:
    other = make("cpu")
    for _ in range(5):
        step(other, [[0.3], [0.0], [-0.3]])
    engine.restore(other.state())
    np.testing.assert_allclose(engine.state(), other.state(), rtol=1e-6)
    other.restore(engine.state())
    np.testing.assert_array_equal(other.state(), engine.state())
    step(engine, np.zeros((3, 1)))
    step(other, np.zeros((3, 1)))
    np.testing.assert_allclose(to_numpy(engine.qpos), other.qpos, atol=TOLERANCE[kind])


def test_invalid_arguments_raise_with_the_remedy(engine: Engine) -> None:
    with pytest.raises(ValueError, match="'ball' is not a mocap body"):
        engine.mocap("ball")
    with pytest.raises(ValueError, match="are not consecutive"):
        engine.joint_columns(["rod", "ball"])
    with pytest.raises(ValueError, match="same task and number of environments"):
        engine.restore(np.zeros((2, 2)))
