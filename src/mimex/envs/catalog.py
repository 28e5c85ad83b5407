"""Names of robots and tasks, available without importing MuJoCo.

To add a robot, add a file in ``robots`` and a line in ``ROBOTS``. To add a task, add a file in
``tasks`` and a line in ``KINDS``. Every task is available for every robot. Variants are published
tasks with other settings.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mimex.envs.nearest import choose

if TYPE_CHECKING:
    from mimex.envs.robots.base import Robot
    from mimex.envs.tasks.base import Task

ROBOTS = {
    "Franka": "franka:FRANKA",
    "Kuka": "kuka_allegro:KUKA",
}
"""Robot name to module and object in ``robots``; experts are in the same module of ``experts``."""

KINDS = {
    "Reach": "reach:Reach",
    "Cabinet": "cabinet:Cabinet",
    "Pick": "pick:Pick",
    "Move": "move:Move",
}
"""Task kind to module and class in ``tasks``."""

TASKS = tuple(robot + kind for robot in ROBOTS for kind in KINDS)
"""The eight published tasks."""

FAR_GOAL = {"goal_spread": 0.0, "terms": ("goal_bonus=8",), "episode_steps": 100}
"""A single goal that random actions do not reach, with a goal bonus that outweighs the action
penalty of getting there."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "FrankaReachUp": ("FrankaReach", {**FAR_GOAL, "goal_offset": (0.0, 0.0, 0.35)}),
    "FrankaReachRight": ("FrankaReach", {**FAR_GOAL, "goal_offset": (0.15, -0.4, 0.3)}),
    "KukaReachLeft": ("KukaReach", {**FAR_GOAL, "goal_offset": (0.0, 0.4, 0.4)}),
}
"""Variant name to published task and changed settings. On the Franka's two variants exploration is
the only difficulty; random actions sometimes reach the Kuka's goal (docs/results.md)."""

NAMES = (*TASKS, *VARIANTS)


def published_task(name: str) -> str:
    """Return the published task of a task or variant."""
    return VARIANTS[name][0] if name in VARIANTS else choose("task", name, NAMES)


def robot_and_kind(task: str) -> tuple[str, str]:
    """Return the robot and the kind of a task, for example "Franka" and "Pick"."""
    task = published_task(task)
    robot = next(name for name in ROBOTS if task.startswith(name) and task[len(name) :] in KINDS)
    return robot, task.removeprefix(robot)


def robot_named(name: str) -> Robot:
    """Return a robot by name."""
    robot: Robot = _loaded("robots", ROBOTS[choose("robot", name, tuple(ROBOTS))])
    return robot


def task_class(kind: str) -> type[Task]:
    """Return the class of a task kind, for example "Pick"."""
    found: type[Task] = _loaded("tasks", KINDS[choose("task", kind, tuple(KINDS))])
    return found


def expert_classes(robot: str) -> dict[str, Any]:
    """Return the expert classes of a robot by task; empty if it has none."""
    module = ROBOTS[robot].partition(":")[0]
    try:
        experts: dict[str, Any] = _loaded("experts", f"{module}:EXPERTS")
    except ModuleNotFoundError as error:
        if error.name != f"mimex.envs.experts.{module}":
            raise
        return {}
    return experts


def _loaded(folder: str, entry: str) -> Any:
    module, _, name = entry.partition(":")
    return getattr(import_module(f"mimex.envs.{folder}.{module}"), name)
