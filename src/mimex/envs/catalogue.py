"""Which robots and tasks there are, known by name without loading MuJoCo.

A new robot is a file in ``robots`` and a line in ``ROBOTS``, a new task a file in ``tasks`` and a
line in ``KINDS``: every robot has every task. Beside the published eight there are variants, which
are one of them with other settings.
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
"""By name, the file in ``robots``, also of the experts in ``experts``, and what it is called."""

KINDS = {
    "Reach": "reach:Reach",
    "Cabinet": "cabinet:Cabinet",
    "Pick": "pick:Pick",
    "Move": "move:Move",
}
"""By name, the file in ``tasks`` and the class."""

TASKS = tuple(robot + kind for robot in ROBOTS for kind in KINDS)
"""The published ones."""

FAR_GOAL = {"goal_spread": 0.0, "terms": ("goal_bonus=8",), "episode_steps": 100}
"""One goal, where noise does not come, and a weight on being there with which a touch is worth more
than the way to it costs."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "FrankaReachUp": ("FrankaReach", {**FAR_GOAL, "goal_offset": (0.0, 0.0, 0.35)}),
    "FrankaReachRight": ("FrankaReach", {**FAR_GOAL, "goal_offset": (0.15, -0.4, 0.3)}),
    "KukaReachLeft": ("KukaReach", {**FAR_GOAL, "goal_offset": (0.0, 0.4, 0.4)}),
}
"""By name, the published task that each is, and its settings where they differ. The Franka's two
are hard to explore, for no other reason; noise finds the Kuka's now and then (docs/results.md)."""

NAMES = (*TASKS, *VARIANTS)


def published_task(name: str) -> str:
    """Return the published task that a task is, or is a variant of."""
    return VARIANTS[name][0] if name in VARIANTS else choose("task", name, NAMES)


def robot_and_kind(task: str) -> tuple[str, str]:
    """Return the two parts of a published task's name, for example "Franka" and "Pick"."""
    task = published_task(task)
    robot = next(name for name in ROBOTS if task.startswith(name) and task[len(name) :] in KINDS)
    return robot, task.removeprefix(robot)


def robot_named(name: str) -> Robot:
    """Return a robot by its name."""
    robot: Robot = _loaded("robots", ROBOTS[choose("robot", name, tuple(ROBOTS))])
    return robot


def task_class(kind: str) -> type[Task]:
    """Return the class of a kind of task by its name, for example "Pick"."""
    found: type[Task] = _loaded("tasks", KINDS[choose("task", kind, tuple(KINDS))])
    return found


def expert_classes(robot: str) -> dict[str, Any]:
    """Return the experts of a robot by task; none where nobody has written any."""
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
