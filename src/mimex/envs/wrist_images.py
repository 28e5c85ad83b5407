"""Wrist-camera images rendered from running simulations, for pretraining."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.envs import scene
from mimex.envs.arrays import rows_of, to_numpy
from mimex.envs.camera import Camera, Image
from mimex.envs.catalog import robot_and_kind
from mimex.envs.engine import ALL
from mimex.envs.experts.play import expert_for
from mimex.envs.manipulation import VectorManipulation

Floats = NDArray[np.float64]

GUIDED = 0.9
"""Fraction of the draws in which the policy acts, in the half of the environments that it has."""
CHANGE = 0.05
"""Probability per step that a random action changes; otherwise it is repeated."""
RESTART, RESTART_SOLVED = 1 / 64, 1 / 4
"""Probability per draw that an episode is restarted, running or solved. Restarts desynchronize the
environments, so that each batch has images of all phases of an episode."""

COLOR_RANGE = 0.2  # half-width of the noise on each color channel in [0, 1]
LIGHT_RANGE = 0.4  # relative
FOVY_RANGE = 0.05  # relative
GAIN_RANGE, OFFSET_RANGE, NOISE = (
    0.15,
    15.0,
    3.0,
)  # relative; gray levels


class WristImages:
    """An endless source of images of one task.

    In half of the environments the policy acts, interrupted by random actions; in the others all
    actions are random. A fraction of the images is randomized in color, light, field of view,
    contrast and pixel noise.

    Args:
        env: The environments; ``close`` closes them.
        image_size: Height and width of an image (pixels).
        seed: Seed of the episodes, actions and visual randomization.
        policy: Returns actions ``(N, A)`` for observations; by default the task's expert.
        varied: Fraction of the images with visual randomization.
        every: Control steps between two draws.
    """

    def __init__(
        self,
        env: VectorManipulation,
        image_size: int,
        seed: int,
        *,
        policy: Callable[[Any], Any] | None = None,
        varied: float = 0.5,
        every: int = 4,
    ) -> None:
        self.env, self._policy, self._varied, self._every = env, policy, varied, every
        self._expert = expert_for(env.task_name)(env) if policy is None else None
        self._generator = np.random.default_rng(seed)
        self._model = scene.build(env.robot, robot_and_kind(env.task_name)[1]).compile()
        camera = env.robot.wrist_camera
        size = (image_size, image_size)
        self._camera = Camera(env.engine, self._model, camera, size, channels_first=True)
        self._camera_id = self._model.camera(camera).id
        self._poses = env.engine.field("cam_xpos"), env.engine.field("cam_xmat")
        colors = self._model.geom_rgba[:, :3].copy()
        self._colors, self._color_of = np.unique(colors, axis=0, return_inverse=True)
        head = self._model.vis.headlight
        self._lights = (self._model.light_diffuse, head.ambient, head.diffuse)  # live
        self._default_lights = [light.copy() for light in self._lights]
        self._fovy = float(self._model.cam_fovy[self._camera_id])
        self._observation, _ = env.reset(seed=int(self._generator.integers(2**31)))
        self._actions = self._random_actions()

    def draw(self) -> Image:
        """Advance the simulations and return one image per environment, (N, 3, size, size)."""
        env, draws = self.env, self._generator
        guided = np.arange(env.num_envs) < (env.num_envs + 1) // 2
        guided &= draws.random(env.num_envs) < GUIDED
        for _ in range(self._every):
            changed = draws.random(env.num_envs) < CHANGE
            self._actions[changed] = self._random_actions()[changed]
            actions = np.where(guided[:, None], self._policy_actions(), self._actions)
            self._observation, _, terminated, truncated, info = env.step(actions)
            self._restarted(terminated | truncated)
        probability = np.where(info["success"], RESTART_SOLVED, RESTART)
        restart = draws.random(env.num_envs) < probability
        if restart.any():
            self._observation, _ = env.reset(options={"reset_mask": restart})
            self._restarted(restart)
        return self._render()

    def targets(self) -> dict[str, Floats]:
        """Return the targets of linear probes for the current images, (N, D) by name.

        Positions (m) are in the world's frame, or in the camera's frame (right, up, backward).
        """
        env, (_, kind) = self.env, robot_and_kind(self.env.task_name)
        oracle = {name: to_numpy(part) for name, part in env.world.task.oracle(ALL).items()}
        found = {"hand": to_numpy(env.positions()).copy()}
        if kind == "Cabinet":
            return found | {"drawer opening": env.settings.opening - oracle["object_to_goal"]}
        points = {"cube": "object"} if kind in ("Pick", "Move") else {}
        points |= {"goal": "goal"} if kind in ("Reach", "Move") else {}
        eye, axes = (to_numpy(pose)[:, self._camera_id] for pose in self._poses)
        for name, group in points.items():
            offset = oracle[group] - eye
            in_camera = np.einsum("nij,ni->nj", axes.reshape(-1, 3, 3), offset)
            found |= {name: oracle[group].copy(), f"{name} in the camera's frame": in_camera}
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the full state, for an exact resume."""
        plan = None if self._expert is None else [self._expert.leg, self._expert.steps_in_leg]
        return {
            "env": self.env.get_state(),
            "plan": None if plan is None else [part.copy() for part in plan],
            "actions": self._actions.copy(),
            "generator": dict(self._generator.bit_generator.state),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        self.env.set_state(state["env"])
        if self._expert is not None:
            self._expert.leg[:], self._expert.steps_in_leg[:] = state["plan"]
        self._actions[:] = state["actions"]
        self._generator.bit_generator.state = state["generator"]
        self._observation = self.env.observe()

    def close(self) -> None:
        """Free the OpenGL contexts."""
        self._camera.close()
        self.env.close()

    def _policy_actions(self) -> Any:
        if self._policy is not None:
            return self._policy(self._observation)
        assert self._expert is not None
        return self._expert.act(self.env)

    def _restarted(self, which: NDArray[np.bool_]) -> None:
        if self._expert is not None:
            self._expert.reset(which)

    def _random_actions(self) -> Floats:
        shape = self.env.num_envs, len(self.env.robot.joints)
        return self._generator.uniform(-1.0, 1.0, shape)

    def _render(self) -> Image:
        count, draws = self.env.num_envs, self._generator
        varied = draws.random(count) < self._varied
        images = np.empty((count, 3, *self._camera.size), np.uint8)
        self._set_appearance(varied=False)
        images[~varied] = self._camera.render(rows_of(~varied))
        for row in rows_of(varied):  # one at a time: they share one model
            self._set_appearance(varied=True)
            image = self._camera.render(row[None])[0]
            gain, offset, noise = draws.uniform((-1, -1, 0), 1)
            pixels = (1 + GAIN_RANGE * gain) * (image - 128.0) + 128.0 + OFFSET_RANGE * offset
            pixels += NOISE * noise * draws.standard_normal(image.shape)
            images[row] = pixels.round().clip(0, 255)
        return images

    def _set_appearance(self, *, varied: bool) -> None:
        """Set colors, lights and field of view to the task's values, or randomize them."""
        draws = self._generator
        colors, lights, fovy = self._colors, self._default_lights, self._fovy
        if varied:
            colors = colors + draws.uniform(-COLOR_RANGE, COLOR_RANGE, colors.shape)
            lights = [light * draws.uniform(1 - LIGHT_RANGE, 1 + LIGHT_RANGE) for light in lights]
            fovy *= 1 + FOVY_RANGE * draws.uniform(-1, 1)
        self._model.geom_rgba[:, :3] = colors.clip(0, 1)[self._color_of.ravel()]
        for light, value in zip(self._lights, lights, strict=True):
            light[:] = value
        self._model.cam_fovy[self._camera_id] = fovy
