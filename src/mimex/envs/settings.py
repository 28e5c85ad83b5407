"""Settings of the manipulation tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from mimex.envs.catalog import KINDS, TASKS, robot_and_kind, robot_named, task_class
from mimex.envs.nearest import choose
from mimex.envs.reward import SHAPINGS, reweighed, weights

__all__ = ["Settings", "TASKS", "OBSERVATIONS", "PUBLISHED_HZ", "robot_and_kind"]

OBSERVATIONS = ("oracle", "robot", "pixels")
QUALITIES = ("fast", "nice")
LIFTS = ("clear", "center", "held")
ENGINES = ("cpu", "warp")

PUBLISHED_HZ = 60.0
"""Control steps per second in the benchmark; no simulation step is longer than 1/60 s."""

UNSTABLE_DIR = "MIMEX_UNSTABLE_DIR"
"""Environment variable with the default of `unstable_dir`."""


@dataclass(frozen=True)
class Settings:
    """Keyword arguments of the tasks; the defaults are the published benchmark's.

    A setting that only some tasks use names them first; the others accept its default only.

    Attributes:
        reward: "dense", "sparse", "sparser", or weights by reward term.
        terms: Weights of individual reward terms that override `reward`, as "handle_bonus=0".
        observation: "oracle" (full state), "robot" (joints only) or "pixels" (image and joints).
        image_size: Width and height of the wrist image (pixels).
        fovy: Field of view of the square wrist image (degrees); the default is the published one.
        quality: Rendering quality: "fast" for learning, "nice" with shadows and anti-aliasing.
        control_hz: Control steps per second.
        episode_steps: Steps until truncation; the default is the published duration.
        success_steps: Consecutive steps in which the success condition must hold.
        lift: Pick and Move: the cube counts as lifted when its lowest corner is up ("clear"), when
            its center is up ("center", the published rule, which a tipped cube also satisfies), or
            when it is clear and between the fingers ("held"; the goal bonus and success then
            require this, too, so that a tossed cube does not count).
        opening: Cabinet: drawer opening required for success (m); the goal bonus starts 2 cm
            earlier.
        hold: Cabinet: for success a gripper must still hold the handle of the open drawer.
        goal_spread: Reach and Move: factor on the range that goals are drawn from.
        goal_offset: Reach and Move: offset of the goal range (m, in x, y and z).
        object_spread: Pick, Move and Cabinet: factor on the range of cube or cabinet positions.
        joint_noise: Half-width of the uniform noise on the home pose (rad, m).
        expert_starts: Fraction of autoreset episodes that start in a state of the scripted expert;
            episodes started by `reset` never do. An oracle baseline: it shows whether a task is
            hard because its reward is hard to find.
        engine: Simulator: "cpu" (MuJoCo, multithreaded) or "warp" (MuJoCo Warp, on a GPU if there
            is one; `pip install 'mimex[warp]'`).
        threads: Threads for simulation and rendering; by default one per 8 environments.
        unstable_dir: Directory for the states of unstable simulations; by default the environment
            variable MIMEX_UNSTABLE_DIR, and without it they are not saved.
    """

    reward: str | Mapping[str, float] = "sparse"
    terms: tuple[str, ...] = ()
    observation: str = "oracle"
    image_size: int = 224
    fovy: float | None = None
    quality: str = "fast"
    control_hz: float = PUBLISHED_HZ
    episode_steps: int | None = None
    success_steps: int = 10
    lift: str = "clear"
    opening: float = 0.32
    hold: bool = True
    goal_spread: float = 1.0
    goal_offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    object_spread: float = 1.0
    joint_noise: float = 0.125
    expert_starts: float = 0.0
    engine: str = "cpu"
    threads: int | None = None
    unstable_dir: str | None = field(default_factory=lambda: os.environ.get(UNSTABLE_DIR))

    def __post_init__(self) -> None:
        if isinstance(self.reward, str):
            choose("reward", self.reward, SHAPINGS)
        choose("observation", self.observation, OBSERVATIONS)
        choose("quality", self.quality, QUALITIES)
        choose("lift", self.lift, LIFTS)
        choose("engine", self.engine, ENGINES)
        for name in ("image_size", "control_hz", "success_steps"):
            _require(name, getattr(self, name), getattr(self, name) > 0, "above 0")
        for name in ("goal_spread", "object_spread", "joint_noise"):
            _require(name, getattr(self, name), getattr(self, name) >= 0, "0 or more")
        wide = 0.02 < self.opening <= 0.4
        _require("opening", self.opening, wide, "above 0.02 and at most 0.4 m, the drawer's travel")
        share = self.expert_starts
        _require("expert_starts", share, 0 <= share <= 1, "in [0, 1]")
        for name in ("episode_steps", "threads"):
            value = getattr(self, name)
            _require(name, value, value is None or value >= 1, "1 or more, or None")
        within = self.fovy is None or 0 < self.fovy < 180
        _require("fovy", self.fovy, within, "between 0 and 180 degrees, or None")

    @classmethod
    def of(cls, **chosen: Any) -> Settings:
        """Return settings from keyword arguments; an unknown name raises with the closest one."""
        names = tuple(f.name for f in fields(cls))
        for name in chosen:
            choose("a keyword argument", name, names)
        return cls(**chosen)

    def require_used(self, task: str) -> None:
        """Raise ValueError if a setting that the task does not use differs from its default."""
        classes = {kind: task_class(kind) for kind in KINDS}
        own = classes[robot_and_kind(task)[1]].own_settings
        specific = [name for found in classes.values() for name in found.own_settings]
        for name in specific:
            value, default = getattr(self, name), getattr(Settings, name)
            if name not in own and value != default:
                users = ", ".join(k for k, found in classes.items() if name in found.own_settings)
                raise ValueError(
                    f"{name} is {value!r}, but {task} does not use it: it is a setting of {users}; "
                    f"leave it at {default!r}"
                )

    def weights(self, task: str) -> dict[str, float]:
        """Return the weight of each reward term of a task."""
        return reweighed(task, weights(task, self.reward), self.terms)

    def substeps(self) -> int:
        """Return simulation steps per control step, so that none is longer than 1/60 s."""
        return max(1, -int(-PUBLISHED_HZ // self.control_hz))

    def length(self, task: str) -> int:
        """Return the episode length in steps; by default the published duration at any rate."""
        if self.episode_steps is not None:
            return self.episode_steps
        robot, kind = robot_and_kind(task)
        found = task_class(kind)
        steps = found.steps
        if self.reward != "dense":
            steps = found.sparse_steps.get(robot_named(robot).end_effector, steps)
        return max(1, round(steps * self.control_hz / PUBLISHED_HZ))

    def thread_count(self, num_envs: int) -> int:
        """Return the number of threads: one per 8 environments, at most one per core."""
        if self.threads is not None:
            return self.threads
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        return max(1, min(cores, num_envs // 8))


def _require(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value!r}, but must be {expected}")
