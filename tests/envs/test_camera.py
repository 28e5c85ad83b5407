"""Images: what they show, their layout, and the error without graphics."""

from __future__ import annotations

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from mimex.envs.manipulation import VectorManipulation

pytestmark = pytest.mark.render


def blue(image: np.ndarray) -> np.ndarray:
    """Where an image (3, H, W) shows the cube's color."""
    red, green, blue = image.astype(int)
    return (blue > 90) & (blue > 2 * red) & (blue > green)


@pytest.mark.parametrize("task", ["FrankaPick", "KukaCabinet"])
def test_pixels_have_the_declared_layout(task: str) -> None:
    env = VectorManipulation(task, 3, observation="pixels", image_size=32, threads=2)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert observation["image"].shape == (3, 3, 32, 32)
    state, _ = VectorManipulation(task, 3, observation="robot").reset(seed=0)
    np.testing.assert_array_equal(observation["robot"], state)
    assert all(image.std() > 5 for image in observation["image"])
    env.close()


def test_the_image_shows_the_cube_at_its_position() -> None:
    env = VectorManipulation("FrankaPick", 2, observation="pixels", image_size=64)
    env.reset(seed=0)
    columns, _ = env.engine.joint_columns(["cube"])
    fingers = env.world.task.fingers()
    camera = env.engine.field("cam_xpos")
    env.engine.refresh()
    # The camera looks along the fingers: extend the line from the camera past their middle.
    place = camera[0, env.model.camera("wrist").id]
    ahead = place + 3.0 * (fingers[0].mean(axis=0) - place)
    env.engine.qpos[:, columns] = (0.0, 1.0, 5.0, 1, 0, 0, 0)
    env.engine.qpos[0, columns.start : columns.start + 3] = ahead
    env.engine.refresh()
    images = env.observe()["image"]
    assert blue(images[0]).sum() > 10
    assert blue(images[1]).sum() == 0
    rows, cols = np.nonzero(blue(images[0]))
    assert 10 < rows.mean() < 54
    assert 10 < cols.mean() < 54
    env.close()


def test_threads_and_other_environments_do_not_change_an_image() -> None:
    alone = VectorManipulation("KukaMove", 1, observation="pixels", image_size=40)
    among = VectorManipulation("KukaMove", 5, observation="pixels", image_size=40, threads=2)
    first, _ = alone.reset(seed=3)
    second, _ = among.reset(seed=3)
    np.testing.assert_array_equal(first["image"][0], second["image"][0])
    action = np.full(among.action_space.shape, 0.3)
    first, *_ = alone.step(action[:1])
    second, *_ = among.step(action)
    np.testing.assert_array_equal(first["image"][0], second["image"][0])
    alone.close()
    among.close()


def test_the_last_image_of_an_episode_differs_from_the_first_of_the_next() -> None:
    env = VectorManipulation("FrankaReach", 2, observation="pixels", image_size=32, episode_steps=2)
    env.reset(seed=0)
    env.step(np.zeros((2, 9)))
    observation, _, _, truncated, info = env.step(np.zeros((2, 9)))
    assert truncated.all()
    final = info["final_obs"][1]
    assert final["image"].shape == (3, 32, 32)
    assert not np.array_equal(final["image"], observation["image"][1])
    env.close()


def test_field_of_view_and_quality_are_choices() -> None:
    images = {}
    for name, chosen in {"fast": {}, "narrow": {"fovy": 60}, "nice": {"quality": "nice"}}.items():
        env = VectorManipulation("FrankaPick", 1, observation="pixels", image_size=64, **chosen)
        images[name] = env.reset(seed=0)[0]["image"][0]
        env.close()
    assert not np.array_equal(images["fast"], images["narrow"])
    assert not np.array_equal(images["fast"], images["nice"])


def test_render_returns_an_image_for_viewing() -> None:
    env = gymnasium.make("mimex/FrankaMove-v0", render_mode="rgb_array")
    env.reset(seed=0)
    image = env.render()
    assert image.shape == (480, 640, 3)
    assert image.dtype == np.uint8
    assert blue(image.transpose(2, 0, 1)).sum() > 100  # the cube on the table
    env.close()
    vector = gymnasium.make_vec("mimex/FrankaMove-v0", num_envs=2, render_mode="rgb_array")
    vector.reset(seed=0)
    assert [frame.shape for frame in vector.render()] == [(480, 640, 3)] * 2
    vector.close()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_accepts_pixels_and_rendering() -> None:
    env = gymnasium.make(
        "mimex/KukaPick-v0", observation="pixels", image_size=48, render_mode="rgb_array"
    )
    check_env(env.unwrapped)
    env.close()


def test_without_opengl_the_error_has_a_remedy() -> None:
    code = (
        "from mimex.envs.manipulation import VectorManipulation\n"
        "from mimex.envs.camera import GraphicsError\n"
        "VectorManipulation('FrankaReach', observation='oracle').reset(seed=0)\n"
        "try:\n"
        "    VectorManipulation('FrankaReach', observation='pixels')\n"
        "except GraphicsError as error:\n"
        "    print(error)\n"
    )
    # A device that does not exist stands for a machine without EGL.
    env = os.environ | {"MUJOCO_GL": "egl", "MUJOCO_EGL_DEVICE_ID": "99"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True
    )
    assert "apt-get install libegl1 libgl1-mesa-dri" in done.stdout
    assert 'observation="oracle"' in done.stdout


def test_a_program_without_close_exits_without_errors() -> None:
    code = (
        "import gymnasium, mimex.envs\n"
        "env = gymnasium.make('mimex/FrankaReach-v0', observation='pixels', image_size=16)\n"
        "env.reset(seed=0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr == ""
