"""Tasks on MuJoCo Warp: as on MuJoCo, as tensors, saved bit for bit."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from mimex.envs.arrays import to_numpy
from mimex.envs.experts import run
from mimex.envs.manipulation import VectorManipulation
from mimex.envs.settings import TASKS

slow = pytest.mark.slow  # compiles for minutes the first time


def made(task: str, num_envs: int = 4, **settings: Any) -> VectorManipulation:
    pytest.importorskip("mujoco_warp", reason="needs pip install 'mimex[warp]'")
    env = VectorManipulation(task, num_envs, engine="warp", **settings)
    env.reset(seed=0)
    return env


def actions_of(env: VectorManipulation, steps: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1.0, 1.0, (steps, *env.targets.shape))


def test_without_the_package_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    monkeypatch.delitem(sys.modules, "mimex.envs.warp_engine", raising=False)
    with pytest.raises(ImportError, match=r"engine='warp' needs .* pip install 'mimex\[warp\]'"):
        VectorManipulation("FrankaReach", 1, engine="warp")


@slow
@pytest.mark.parametrize("task", ["FrankaPick", "KukaMove"])
def test_fifty_steps_equal_mujocos(task: str) -> None:
    theirs = made(task, reward="dense")
    ours = VectorManipulation(task, 4, reward="dense")
    np.testing.assert_allclose(ours.reset(seed=0)[0], theirs.observe(), atol=1e-6)
    for actions in actions_of(ours, 50):
        expected, found = ours.step(actions), theirs.step(actions)
        np.testing.assert_allclose(found[0], expected[0], atol=1e-3)  # observations
        np.testing.assert_allclose(found[1], expected[1], atol=1e-3)  # rewards
        np.testing.assert_array_equal(found[2], expected[2])
        assert (found[0].dtype, found[2].dtype) == (np.float32, bool)


@slow
def test_a_touch_ends_the_episode_with_the_same_force_as_mujoco() -> None:
    theirs = made("FrankaReach", 3, autoreset_mode=AutoresetMode.DISABLED)
    ours = VectorManipulation("FrankaReach", 3, autoreset_mode=AutoresetMode.DISABLED)
    ours.reset(seed=0)
    down = np.zeros((3, 9))
    down[:, (1, 3)] = 1.0, -0.3  # the arm onto the table
    touched = np.zeros(3, bool)
    for _ in range(100):
        touches = [env.step(down)[4]["arm_touched"] for env in (ours, theirs)]
        np.testing.assert_array_equal(*touches)
        force = to_numpy(theirs.engine.arm_force())
        np.testing.assert_allclose(force, ours.engine.arm_force(), rtol=0.02, atol=0.1)
        touched |= touches[0]
        if touched.all():
            return
    pytest.fail("the arm never touched the table")


@slow
@pytest.mark.parametrize("task", TASKS)
def test_the_expert_solves_the_task(task: str) -> None:
    pytest.importorskip("mujoco_warp", reason="needs pip install 'mimex[warp]'")
    assert run(task, range(4), engine="warp").all()


@slow
@pytest.mark.parametrize("task", ["FrankaCabinet", "KukaPick"])
def test_a_saved_environment_continues_bit_for_bit(task: str) -> None:
    env, twin = made(task, episode_steps=30), made(task, episode_steps=30)
    actions = actions_of(env, 60)
    for action in actions[:20]:
        env.step(action)
    state = env.get_state()
    assert all(not hasattr(value, "cpu") for value in state.values())  # no tensors
    twin.set_state(state)
    for action in actions[20:]:
        expected, found = env.step(action), twin.step(action)
        for ours, theirs in zip(expected[:4], found[:4], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_equal(twin.get_state(), env.get_state())


@slow
def test_a_state_of_the_other_engine_can_be_loaded() -> None:
    ours = VectorManipulation("FrankaPick", 4)
    ours.reset(seed=3)
    for action in actions_of(ours, 10):
        ours.step(action)
    theirs = made("FrankaPick")
    theirs.set_state(ours.get_state())
    np.testing.assert_allclose(theirs.observe(), ours.observe(), atol=1e-6)
    ours.set_state(theirs.get_state())
    np.testing.assert_allclose(theirs.observe(), ours.observe(), atol=1e-6)


@slow
def test_advance_returns_tensors_and_does_not_reset() -> None:
    import torch

    env = made("FrankaMove", episode_steps=2)
    assert env.engine.qpos.data_ptr() == env.engine._data.qpos.ptr  # the simulation's own memory
    still = torch.zeros(4, 9)
    for _ in range(2):
        observation, rewards, terminated, truncated, info = env.advance(still)
    for tensor in (observation, rewards, terminated, truncated, info["success"]):
        assert isinstance(tensor, torch.Tensor)
        assert tensor.device == env.engine.qpos.device
    assert observation.dtype == rewards.dtype == torch.float32
    assert truncated.all()
    np.testing.assert_array_equal(to_numpy(observation), env.observe())


@slow
@pytest.mark.parametrize("settings", [{}, {"expert_starts": 1.0}])
def test_tensors_have_the_same_values(settings: dict[str, Any]) -> None:
    import torch

    numpys, tensors = (made("FrankaPick", 4, episode_steps=4, **settings) for _ in range(2))
    for env in (numpys, tensors):
        env.set_state(env.get_state() | {"steps": np.array([0, 1, 0, 3])})  # not all end at once
    ends = 0
    kept = []
    for actions in actions_of(numpys, 10):
        *expected, numpy_info = numpys.step(actions)
        *found, info = tensors.step_on_device(tensors.engine.array(actions))
        for ours, theirs in zip(found, expected, strict=True):
            assert isinstance(ours, torch.Tensor)
            assert ours.device == tensors.engine.qpos.device
            assert isinstance(theirs, np.ndarray)
            np.testing.assert_array_equal(to_numpy(ours), theirs)
        kept.append((found[0], expected[0].copy()))
        ended = expected[2] | expected[3]
        running, final = numpy_info, numpy_info.get("final_info", {})
        assert ("final_info" in info) == ("final_obs" in info) == ended.any()
        for name in final and info.keys() - {"final_info", "final_obs"}:
            ours = to_numpy(info[name])
            np.testing.assert_array_equal(np.where(ended, final[name], running[name]), ours)
            np.testing.assert_array_equal(to_numpy(info["final_info"][name]), ours)
        if ended.any():
            last = np.stack(list(numpy_info["final_obs"][ended]))
            np.testing.assert_array_equal(to_numpy(info["final_obs"]), last)
        ends += ended.sum()
    assert ends >= 8
    for ours, theirs in kept:  # later steps wrote over nothing
        np.testing.assert_array_equal(to_numpy(ours), theirs)
    np.testing.assert_equal(tensors.get_state(), numpys.get_state())


@slow
@pytest.mark.render
def test_images_stay_numpy_arrays() -> None:
    import torch

    env = made("FrankaPick", 2, episode_steps=2, observation="pixels", image_size=32)
    for _ in range(2):
        observation, *_, info = env.step_on_device(torch.zeros(2, 9))
    for seen in (observation, info["final_obs"]):
        assert isinstance(seen["image"], np.ndarray)
        assert isinstance(seen["robot"], torch.Tensor)
    env.close()


@slow
def test_overflowing_contacts_are_reported_as_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco_warp", reason="needs pip install 'mimex[warp]'")
    monkeypatch.setattr("mimex.envs.warp_engine.ROWS", 1)  # the boxes in the drawer need more
    env = made("FrankaCabinet")
    failed = np.zeros(4, bool)
    for _ in range(5):  # until the boxes have settled
        *_, info = env.step(np.zeros((4, 9)))
        if "final_info" in info:
            failed |= info["final_info"]["unstable"]
    assert failed.all()
    assert np.isfinite(env.observe()).all()


@slow
@pytest.mark.parametrize("starts", [0.0, 1.0])
def test_episodes_are_reset(starts: float) -> None:
    env = made("FrankaPick", 3, episode_steps=3, expert_starts=starts)
    for step in range(1, 7):
        observation, _, _, truncated, info = env.step(np.zeros((3, 9)))
        assert truncated.all() == (step % 3 == 0)
    assert np.isfinite(observation).all()
    assert not np.array_equal(info["final_obs"][0], observation[0])


@slow
@pytest.mark.render
def test_images_equal_those_of_the_cpu_engine() -> None:
    settings: dict[str, Any] = {"observation": "pixels", "image_size": 64}
    theirs = made("FrankaPick", 2, render_mode="rgb_array", **settings)
    ours = VectorManipulation("FrankaPick", 2, render_mode="rgb_array", **settings)
    ours.reset(seed=0)
    for action in actions_of(ours, 5):
        images = [env.step(action)[0]["image"].astype(float) for env in (ours, theirs)]
    assert np.ptp(images[0]) > 50
    assert np.abs(images[0] - images[1]).mean() < 0.5  # of 255
    renders = [np.array(env.render(), float) for env in (ours, theirs)]
    assert np.abs(renders[0] - renders[1]).mean() < 0.5
    ours.close()
    theirs.close()


@pytest.mark.gpu
def test_on_a_gpu_nothing_is_copied_to_the_cpu() -> None:
    env = made("FrankaReach", 64)
    outcome = env.advance(env.engine.array(np.zeros((64, 9))))
    assert all(part.device.type == "cuda" for part in outcome[:4])
