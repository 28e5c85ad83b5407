"""Images for pretraining: like an agent's observations, varied, and exactly resumable."""

import numpy as np
import pytest

from mimex.envs.manipulation import VectorManipulation
from mimex.envs.wrist_images import WristImages

pytestmark = pytest.mark.render


def source(task="FrankaMove", envs=4, seed=0, **settings):
    return WristImages(VectorManipulation(task, envs, threads=1), 32, seed, **settings)


def test_without_variation_images_equal_an_agents_observations():
    drawn = source(varied=0.0)
    images = drawn.draw()
    agents = VectorManipulation("FrankaMove", 4, threads=1, observation="pixels", image_size=32)
    agents.reset(seed=0)
    agents.set_state(drawn.env.get_state())
    np.testing.assert_array_equal(images, agents.observe()["image"])
    drawn.close()
    agents.close()


def test_varied_images_show_the_same_scene_in_other_colors():
    plain, varied = source(varied=0.0), source(varied=1.0)
    one, other = plain.draw(), varied.draw()
    np.testing.assert_array_equal(
        plain.env.get_state()["physics"], varied.env.get_state()["physics"]
    )
    assert np.abs(one.astype(float) - other).mean(axis=(1, 2, 3)).min() > 2
    again = plain.draw()  # rendering uses the task's own model again
    assert again.shape == (4, 3, 32, 32)
    plain.close()
    varied.close()


def test_half_of_the_images_are_varied_by_default():
    drawn, plain = source(envs=64), source(envs=64, varied=0.0)
    differs = (drawn.draw() != plain.draw()).any(axis=(1, 2, 3))
    assert 16 < differs.sum() < 48
    drawn.close()
    plain.close()


def test_a_restored_source_draws_the_same_images():
    first, second = source(), source(seed=5)
    for _ in range(3):
        first.draw()
    second.load_state_dict(first.state_dict())
    for _ in range(8):
        np.testing.assert_array_equal(first.draw(), second.draw())
    first.close()
    second.close()


def test_half_of_the_robots_are_moved_by_the_expert_and_half_at_random():
    drawn = source("FrankaReach", envs=16, varied=0.0, every=10)
    goals = drawn.targets()["goal"]

    def distance():
        return np.linalg.norm(drawn.targets()["hand"] - drawn.targets()["goal"], axis=1)

    before = distance()
    for _ in range(6):
        drawn.draw()
    same = (drawn.targets()["goal"] == goals).all(axis=1)  # the episode has not been restarted
    closer = before - distance()
    assert closer[:8][same[:8]].mean() > 0.1
    assert closer[8:][same[8:]].mean() < 0.1
    drawn.close()


def test_targets_describe_the_scenes_of_the_images():
    move, cabinet = source(), source("KukaCabinet")
    move.draw()
    found, engine = move.targets(), move.env.engine
    np.testing.assert_allclose(found["cube"], engine.site("cube"), atol=1e-6)
    np.testing.assert_allclose(found["goal"], engine.site("goal"), atol=1e-6)
    assert cabinet.targets()["drawer opening"].shape == (4, 1)
    np.testing.assert_allclose(cabinet.targets()["drawer opening"], 0, atol=1e-3)
    assert set(cabinet.targets()) == {"hand", "drawer opening"}
    move.close()
    cabinet.close()


def test_a_position_in_the_cameras_frame_is_where_the_image_shows_it():
    size, drawn = 32, source("FrankaReach", envs=32, varied=0.0)
    for _ in range(4):
        images = drawn.draw()
    env = drawn.env
    right, up, backward = drawn.targets()["goal in the camera's frame"].T
    fovy = env.model.cam_fovy[env.model.camera(env.robot.wrist_camera).id]
    scale = size / 2 / np.tan(np.radians(fovy) / 2)  # pixels, at a distance of 1
    column, row = (size / 2 + scale * x / -backward for x in (right, -up))
    ahead = (backward < -0.1) & (np.maximum(abs(row - size / 2), abs(column - size / 2)) < 14)
    red, green, _ = images[ahead, :, row[ahead].astype(int), column[ahead].astype(int)].T
    assert ahead.sum() >= 4
    assert (green > 1.5 * red).mean() > 0.7  # the others are behind the hand
    drawn.close()
