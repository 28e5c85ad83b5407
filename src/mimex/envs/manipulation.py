"""The vector environment of all manipulation tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mimex.envs import reward, vector_step
from mimex.envs.arrays import copied, namespace, overwrite, rows_of, to_numpy
from mimex.envs.engine import Array
from mimex.envs.nearest import choose
from mimex.envs.seeding import generator_states, generators, restored_generators
from mimex.envs.settings import TASKS, Settings
from mimex.envs.vector_step import Info, Observation, UnstableRecorder
from mimex.envs.world import World

Mask = NDArray[np.bool_]

ACTION_GAIN = 7.5  # target moves by speed * action * this per second (1/s, published)
TOUCH_LIMIT = 1.0  # N: more contact force on an arm link ends the episode (published)


class VectorManipulation(VectorEnv[Any, Any, Any]):
    """N copies of one task, simulated in this process and processed as arrays.

    An action moves the target of each joint. It is clipped to [-1, 1], also in the action penalty
    (published). An ended episode is reset in the same step: the returned observation is the first
    of the next episode, and `info["final_obs"]` and `info["final_info"]` hold the last of the
    ended one.

    Attributes:
        world: Robot, objects, simulations and cameras.
        engine: The simulations, as arrays by name.
        model: The compiled MuJoCo model.
        robot: The robot.
        targets: Joint targets (N, joints); actions are increments of them.
        settings: The keyword arguments, with their defaults.
        weights: Weight of each reward term by name.
        episode_steps: Steps until truncation.
        generators: Random generator of each environment, for its initial states.
        observation_groups: Column range (start, stop) of each named group of the observation
            vector, for example {"object": (24, 27)}.
        tensors: Whether `step_on_device` returns tensors.

    Args:
        task: Robot and task, for example "FrankaPick".
        num_envs: Number of parallel environments.
        render_mode: "rgb_array" for images of the fixed camera, or None.
        autoreset_mode: SAME_STEP, or DISABLED to reset with `options["reset_mask"]`.
        **settings: Fields of `mimex.envs.settings.Settings`.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration)
        "render_modes": ["rgb_array"],
        "render_fps": 60,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        task: str,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        **settings: Any,
    ) -> None:
        self.task_name = choose("task", task, TASKS)
        self.settings = Settings.of(**settings)
        self.settings.require_used(task)
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}, but must be 1 or more")
        if render_mode is not None:
            choose("render_mode", render_mode, ("rgb_array",))
        self.num_envs = num_envs
        self.render_mode = render_mode
        self._autoreset_mode = AutoresetMode(autoreset_mode)
        if self._autoreset_mode is AutoresetMode.NEXT_STEP:
            raise ValueError("autoreset_mode is NEXT_STEP, but must be SAME_STEP or DISABLED")
        self.metadata = {
            **self.metadata,
            "render_fps": round(self.settings.control_hz),
            "autoreset_mode": self._autoreset_mode,
        }
        self.weights = self.settings.weights(task)
        self.episode_steps = self.settings.length(task)
        self.world = World(task, num_envs, self.settings)
        self.engine, self.robot, self.model = self.world.engine, self.world.robot, self.world.model
        self._recorder = UnstableRecorder(self.settings.unstable_dir, task)

        joints, array = len(self.robot.joints), self.engine.array
        self.single_observation_space = self.world.observation_space()
        self.observation_groups = self.world.observation_groups()
        self.single_action_space = spaces.Box(-1.0, 1.0, (joints,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._gain = array(np.array(self.robot.speeds) * ACTION_GAIN / self.settings.control_hz)
        self.targets = array(np.zeros((num_envs, joints)))
        self.tensors = not isinstance(self.targets, np.ndarray)
        self.generators = generators(None, num_envs)
        xp, row = namespace(self.targets), self.targets[:, 0]
        self._steps = xp.zeros_like(row, dtype=xp.int64)  # of the current episode
        self._streak = xp.zeros_like(self._steps)  # consecutive steps with the condition met
        self._success = xp.zeros_like(row, dtype=xp.bool)
        self._unstable_episodes = xp.zeros_like(self._steps)

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, Info]:
        """Start new episodes.

        Args:
            seed: The generator of environment i depends only on the seed and i. A list gives each
                environment the seed it would have as a single environment. Without a seed the
                generators continue.
            options: `{"reset_mask": (N,) bool}` resets only some environments.
        """
        if seed is not None:
            self.generators = generators(seed, self.num_envs)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self._begin(rows_of(mask))
        return self.observe(), {}

    def step(self, actions: Any) -> tuple[Observation, Array, Mask, Mask, Info]:
        """Advance every environment by one control step; reset those whose episode ended."""
        result = self.step_on_device(actions)
        observation, rewards, terminated, truncated, info = (to_numpy(part) for part in result)
        info = vector_step.laid_out(info, terminated | truncated)
        return observation, rewards, terminated, truncated, info

    def step_on_device(self, actions: Any) -> tuple[Observation, Array, Mask, Mask, Info]:
        """Do the same as `step` without conversion to NumPy: tensors with engine="warp".

        The returned arrays are not modified later. `info` has no masks; `vector_step.with_ended`
        documents its entries for ended episodes. Images are always NumPy arrays.
        """
        observation, rewards, terminated, truncated, info = self.advance(actions)
        ended = terminated | truncated
        if ended.any() and self._autoreset_mode is AutoresetMode.SAME_STEP:
            rows = rows_of(ended)
            info = vector_step.with_ended(info, observation, rows)
            self._begin(rows)
            if self.settings.expert_starts:
                self._skip_ahead(rows)
            vector_step.write_rows(observation, rows, self.world.observe(rows))
        return observation, rewards, terminated, truncated, info

    def advance(self, actions: Any) -> tuple[Observation, Array, Mask, Mask, Info]:
        """Advance every environment by one control step without resets.

        Returns the engine's arrays: tensors with engine="warp". `reset` with
        `options["reset_mask"]` starts new episodes.
        """
        given = self.engine.array(actions)
        checked = vector_step.checked_actions(given, tuple(self.targets.shape), self._steps)
        actions = checked.clip(-1.0, 1.0)
        self.targets += self._gain * actions
        namespace(given).clip(self.targets, *self.world.joints.limits, out=self.targets)
        unstable = self.engine.step(self.world.within_speed(self.targets))
        self._steps += 1
        if unstable.any():
            self._put_back(rows_of(unstable))

        outcome = self.world.task.evaluate()
        terms = outcome.terms | {"action_penalty": reward.action_penalty(actions)}
        self._streak += 1
        self._streak *= outcome.met
        self._success |= self._streak >= self.settings.success_steps
        touched = self.engine.arm_force() > TOUCH_LIMIT
        terminated = touched | outcome.fallen | unstable
        truncated = (self._steps >= self.episode_steps) & ~terminated

        info: Info = {
            "success": copied(self._success),
            "arm_touched": touched,
            "object_fallen": outcome.fallen,
            "unstable": unstable,
            "unstable_episodes": copied(self._unstable_episodes),
        }
        if outcome.touched is not None:
            info["object_touched"] = outcome.touched
        info.update((f"reward/{name}", value) for name, value in terms.items())
        rewards = reward.total(terms, self.weights)
        return self.world.observe(), rewards, terminated, truncated, info

    def _begin(self, rows: NDArray[np.int32]) -> None:
        """Start a new episode in some environments."""
        unit = np.empty((len(rows), self.world.draws))
        for draws, row in zip(unit, rows, strict=True):
            draws[:] = self.generators[row].uniform(-1.0, 1.0, self.world.draws)
        self.targets[rows] = self.world.start(rows, unit)
        for counter in (self._steps, self._streak, self._success):
            counter[rows] = 0

    @cached_property
    def _expert_starts(self) -> dict[str, Array]:
        """States of the task's expert; imported late because the expert imports this module."""
        from mimex.envs.experts.starts import expert_starts

        return expert_starts(self.task_name, self.settings)

    def _skip_ahead(self, rows: NDArray[np.int32]) -> None:
        """Move a fraction of the given environments to random states of the expert."""
        starts = self._expert_starts
        draws = [(self.generators[row].random(), row) for row in rows]
        chosen = np.array(
            [row for draw, row in draws if draw < self.settings.expert_starts], np.int32
        )
        if len(chosen):
            which = [self.generators[row].integers(len(starts["physics"])) for row in chosen]
            self._put(chosen, {name: states[which] for name, states in starts.items()})

    def snapshot(self) -> dict[str, Array]:
        """Return the state of every running episode, (N, ...) by name, for `restore`."""
        kept = {"targets": self.targets, **self.world.task.memory}
        arrays = {name: to_numpy(copied(array)) for name, array in kept.items()}
        return {"physics": self.engine.state(), **arrays}

    def restore(self, rows: NDArray[np.int32], states: Mapping[str, Array]) -> Observation:
        """Start new episodes in some environments at states from `snapshot`.

        Args:
            rows: Indices of the environments, in ascending order.
            states: One state for each of them, (rows, ...) by name.

        Returns:
            Their observations, (rows, ...).
        """
        self._put(rows, states)
        for counter in (self._steps, self._streak, self._success):
            counter[rows] = 0
        return to_numpy(self.world.observe(rows))  # type: ignore[no-any-return]

    def _put(self, rows: NDArray[np.int32], states: Mapping[str, Array]) -> None:
        physics = self.engine.state()
        physics[rows] = states["physics"]
        self.engine.restore(physics, rows)
        for name, array in {"targets": self.targets, **self.world.task.memory}.items():
            array[rows] = self.engine.array(states[name])

    def _put_back(self, rows: NDArray[np.int32]) -> None:
        """Restore failed simulations to the state before the step, which is finite."""
        before = self.engine.state_before()
        for row in rows:
            note = {"episode_step": int(self._steps[row]), "settings": asdict(self.settings)}
            self._recorder.save(int(row), before[row], to_numpy(self.targets[row]), note)
        self.engine.restore(before, rows)
        self._unstable_episodes[rows] += 1

    def observe(self) -> Observation:
        """Return the current observations, for example after `set_state`."""
        return to_numpy(self.world.observe())  # type: ignore[no-any-return]

    position_kind = "hand"

    def positions(self) -> Array:
        """Return the mean of each hand's grasp points (m), (N, 3)."""
        middle: Array = self.world.task.fingers().mean(axis=1)
        return middle

    def render(self) -> tuple[Any, ...] | None:
        """Return an image (height, width, 3) per environment if render_mode is "rgb_array"."""
        return None if self.render_mode is None else tuple(self.world.render())

    def close_extras(self, **kwargs: Any) -> None:
        """Free the OpenGL contexts."""
        self.world.close()

    def set_reward(self, weights: str | Mapping[str, float]) -> None:
        """Change the weights of the reward terms from the next step on, as a curriculum does."""
        self.weights = replace(self.settings, reward=weights).weights(self.task_name)

    def get_state(self) -> dict[str, Any]:
        """Return the full state, for an exact restore.

        Only arrays and JSON-serializable values, so it can be stored without pickle.
        """
        arrays = {name: to_numpy(copied(array)) for name, array in self._arrays().items()}
        return {
            "task": self.task_name,
            "weights": dict(self.weights),
            "generators": generator_states(self.generators),
            "physics": self.engine.state(),
            **arrays,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `get_state`, of this or another process."""
        if state["task"] != self.task_name:
            raise ValueError(
                f"state is of task {state['task']}, but this environment is {self.task_name}"
            )
        self.engine.restore(np.asarray(state["physics"]))
        self.generators = restored_generators(state["generators"])
        self.weights = dict(state["weights"])
        for name, array in self._arrays().items():
            overwrite(array, state[name])

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the state other than the physics, by name."""
        return {
            "targets": self.targets,
            "steps": self._steps,
            "streak": self._streak,
            "success": self._success,
            "unstable_episodes": self._unstable_episodes,
            **{f"task/{name}": array for name, array in self.world.task.memory.items()},
        }
