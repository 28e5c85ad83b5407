"""Images compared with dm_control's renderer."""

from __future__ import annotations

import numpy as np
import pytest

from mimex.envs.dmc import DMC
from mimex.envs.dmc_camera import SuiteCamera
from mimex.envs.dmc_physics import load_suite
from mimex.envs.dmc_tasks import PUBLISHED, camera_of, domain_and_task
from mimex.envs.dmc_vector import VectorDMC

pytestmark = pytest.mark.render


@pytest.mark.parametrize("task", [*PUBLISHED, "cartpole_balance", "reacher_hard"])
def test_published_pixels_equal_dm_controls_bit_for_bit(task: str) -> None:
    domain, _ = domain_and_task(task)
    env = DMC(task, observation="pixels")
    own = load_suite(task)
    own.task.random.seed(3)
    own.reset()
    observation, _ = env.reset(seed=3)
    spec = own.action_spec()
    for action in np.random.default_rng(0).uniform(-1, 1, (3, *spec.shape)):
        expected = own.physics.render(84, 84, camera_id=camera_of(domain))
        np.testing.assert_equal(observation, expected.transpose(2, 0, 1))
        observation, *_ = env.step(action.astype(np.float32))
        scaled = action.astype(np.float32).astype(float)
        for _ in range(2):
            own.step(spec.minimum + (scaled + 1) / 2 * (spec.maximum - spec.minimum))
    env.close()


def test_new_terrain_is_rendered() -> None:
    env = DMC("quadruped_escape", observation="pixels", quality="fast")
    env.reset(seed=0)
    own = env.environment.physics
    hills = env.environment.physics.model.hfield_data
    before = env._render("observation", (84, 84), True)
    hills[:] = hills[::-1].copy()
    after = env._render("observation", (84, 84), True)
    assert (before != after).any()
    assert own.model.vis.global_.offwidth == 640  # the model of others is unchanged
    env.close()


def test_fast_images_differ_mainly_in_lighting() -> None:
    images = []
    for quality in ("published", "fast"):
        env = DMC("cartpole_swingup", observation="pixels", quality=quality)
        images.append(env.reset(seed=0)[0].astype(int))
        env.close()
    difference = np.abs(images[0] - images[1])
    assert 0 < difference.mean() < 3
    assert np.corrcoef(images[0].ravel(), images[1].ravel())[0, 1] > 0.95


def test_one_camera_renders_several_simulations() -> None:
    together = VectorDMC("finger_turn_easy", 3, observation="pixels", quality="fast")
    observation, _ = together.reset(seed=5)
    for i in range(3):
        alone = DMC("finger_turn_easy", observation="pixels", quality="fast")
        np.testing.assert_equal(observation[i], alone.reset(seed=5 + i)[0])
        alone.close()
    together.close()


def test_a_closed_camera_raises() -> None:
    physics = load_suite("cartpole_balance").physics
    model, data = physics.model.ptr, physics.data.ptr
    camera = SuiteCamera(model, 0, (20, 30))
    assert camera.render(model, data).shape == (20, 30, 3)
    camera.close()
    camera.close()
    with pytest.raises(RuntimeError, match="closed"):
        camera.render(model, data)
