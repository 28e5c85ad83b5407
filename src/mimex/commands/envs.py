"""`mimex envs`: list the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import gymnasium
import tyro
from rich.console import Console
from rich.table import Table

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.envs.catalog import KINDS, NAMES, VARIANTS, robot_and_kind, robot_named, task_class
from mimex.envs.dmc_tasks import PREFIX, PUBLISHED, SUITE
from mimex.envs.settings import Settings
from mimex.extras import pip_install


@dataclass(frozen=True)
class EnvsConfig:
    """List the tasks of PixMC-Sparse and those of the DeepMind Control suite."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command."""
    tyro.cli(EnvsConfig, args=arguments, prog="mimex envs")
    console = Console()
    if find_spec("mujoco"):
        console.print(_pixmc())
    else:  # sizes of actions and observations come from the compiled models
        names = "  ".join(NAMES)
        console.print(f"PixMC-Sparse: {names}", soft_wrap=True)
        missing = f"(they need mujoco, which is not installed: {pip_install('envs')})"
        console.print(missing, markup=False, soft_wrap=True)
    console.print(_suite())
    console.print("and gym/ID for any Gymnasium id, or gym/MODULE:ID for your own module")
    return 0


def _pixmc() -> Table:
    steps = Settings().success_steps
    table = Table(title="PixMC-Sparse (mimex[envs]), Gymnasium ids mimex/TASK-v0")
    for column in ("task", "steps dense", "steps sparse", "action", "oracle"):
        table.add_column(column, justify="left" if column == "task" else "right")
    table.add_column(f"success condition, for {steps} consecutive steps")
    for task in NAMES:
        changed = VARIANTS[task][1] if task in VARIANTS else {}
        robot, kind = robot_and_kind(task)
        env = gymnasium.make_vec(f"mimex/{task}-v0", num_envs=1)
        table.add_row(
            task,
            str(Settings(reward="dense", **changed).length(task)),
            str(Settings(reward="sparse", **changed).length(task)),
            str(env.single_action_space.shape[0]),  # type: ignore[index]
            str(env.single_observation_space.shape[0]),  # type: ignore[index]
            task_class(kind).success_condition(robot_named(robot)),
            end_section=kind == list(KINDS)[-1],
        )
        env.close()
    return table


def _suite() -> Table:
    table = Table(title="DeepMind Control suite (mimex[dmc]), same Gymnasium ids")
    table.add_column("domain")
    table.add_column(f"{PREFIX}DOMAIN_TASK; * marks the tasks of the MIMEx paper")
    for domain, tasks in SUITE.items():
        marked = (t + "*" * (f"{domain}_{t}" in PUBLISHED) for t in tasks.split())
        table.add_row(domain, "  ".join(marked))
    return table
