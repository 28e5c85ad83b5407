"""`mimex envs`: the eight tasks, and those of the DeepMind Control suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium
import tyro
from rich.console import Console
from rich.table import Table

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.envs.dmc_tasks import PREFIX, PUBLISHED, SUITE
from mimex.envs.settings import TASKS, Settings, robot_and_kind

_SUCCESS = {
    "FrankaReach": "hand within 4 cm of the goal",
    "FrankaCabinet": "drawer open by 32 cm, both fingers within 4 cm of the handle",
    "FrankaPick": "cube within 10 cm of 80 cm height",
    "FrankaMove": "cube within 4 cm of the goal",
    "KukaReach": "index finger within 4 cm of the goal",
    "KukaCabinet": "drawer open by 32 cm",
    "KukaPick": "cube within 10 cm of 80 cm height",
    "KukaMove": "cube within 6.75 cm of the goal",
}


@dataclass(frozen=True)
class EnvsConfig:
    """List the eight tasks of PixMC-Sparse and those of the DeepMind Control suite."""


def run(arguments: Sequence[str]) -> int:
    """Prints the tables."""
    tyro.cli(EnvsConfig, args=arguments, prog="mimex envs")
    console = Console()
    console.print(_pixmc())
    console.print(_suite())
    return 0


def _pixmc() -> Table:
    steps = Settings().success_steps
    table = Table(title="PixMC-Sparse on MuJoCo, gymnasium ids mimex/TASK-v0")
    for column in ("task", "steps dense", "steps sparse", "action", "oracle"):
        table.add_column(column, justify="left" if column == "task" else "right")
    table.add_column(f"success, for {steps} steps in a row")
    for task in TASKS:
        env = gymnasium.make_vec(f"mimex/{task}-v0", num_envs=1)
        table.add_row(
            task,
            str(Settings(reward="dense").length(task)),
            str(Settings(reward="sparse").length(task)),
            str(env.single_action_space.shape[0]),  # type: ignore[index]
            str(env.single_observation_space.shape[0]),  # type: ignore[index]
            _SUCCESS[task],
            end_section=robot_and_kind(task)[1] == "Move",
        )
        env.close()
    return table


def _suite() -> Table:
    table = Table(title="DeepMind Control suite, of the extra dmc; gymnasium ids are the same")
    table.add_column("domain")
    table.add_column(f"{PREFIX}DOMAIN_TASK; those of the MIMEx paper are marked with *")
    for domain, tasks in SUITE.items():
        marked = (t + "*" * (f"{domain}_{t}" in PUBLISHED) for t in tasks.split())
        table.add_row(domain, "  ".join(marked))
    return table
