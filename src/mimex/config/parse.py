"""The defaults of a preset, and the command line that changes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tyro

from mimex.agents import AGENTS
from mimex.bonus import BONUSES
from mimex.config.brief import brief
from mimex.config.families import FAMILIES, family_of
from mimex.config.families.base import merged
from mimex.config.run import PRESETS, TrainConfig
from mimex.envs.nearest import choose

_HELP_ALL = "--help-all"

_WORDS = f"""Train an agent on a task with an exploration bonus, or continue to.

TASK --help: the usual settings, with that task's defaults.

TASK --bonus BONUS --help: also those of the bonus.

TASK {_HELP_ALL}: all settings."""

_FREE_TEXT = ("--out", "--vision.checkpoint", "--track.project")


def preset(
    name: str,
    observation: str | None = None,
    task: str = "",
    agent: str | None = None,
    reward: str | None = None,
) -> TrainConfig:
    """The defaults of a preset.

    Args:
        name: One of ``PRESETS``.
        observation: A kind of observation that they are for; None for the preset's own.
        task: The task that they are for; any of PixMC-Sparse gives the same.
        agent: The algorithm that they are for; None for the usual one of such tasks.
        reward: The reward that they are for; None for the preset's own.
    """
    choose("--preset", name, PRESETS)
    family = family_of(task)
    agent = choose("--agent", agent or family.agent, tuple(AGENTS))
    config = TrainConfig(task=task, agent=agent, preset=name)
    chosen: TrainConfig = merged(config, family.preset(name, agent, observation, task, reward))
    return chosen


def parse(arguments: Sequence[str], prog: str = "mimex train") -> TrainConfig:
    """The settings that a command line asks for; the others are those of its preset."""
    name, observation, agent, reward = (
        _chosen(arguments, flag) for flag in ("--preset", "--observation", "--agent", "--reward")
    )
    chosen = preset(name or "cpu", observation, _task(arguments), agent, reward)
    if _HELP_ALL in arguments:
        arguments = ["--help"]
    elif {"-h", "--help"} & set(arguments):
        bonus = choose("--bonus", _chosen(arguments, "--bonus") or chosen.bonus, tuple(BONUSES))
        chosen, arguments = brief(chosen, bonus), ["--help"]
    missing: Any = tyro.MISSING  # or the help would not ask for it
    default = replace(chosen, task=missing)
    config = tyro.cli(type(default), args=arguments, default=default, prog=prog, description=_WORDS)
    if config.curriculum and _chosen(arguments, "--reward") is None:
        config = replace(config, reward=config.curriculum[-1])
    return config


def _task(arguments: Sequence[str]) -> str:
    """The task among the arguments, before they can be read: defaults depend on it."""
    pairs = zip(["", *arguments], arguments, strict=False)
    tasks = (word for before, word in pairs if before not in _FREE_TEXT)
    return next((word for word in tasks if _is_task(word)), "")


def _is_task(word: str) -> bool:
    return any(
        word.startswith(family.prefix) if family.prefix else word in family.tasks()
        for family in FAMILIES
    )


def _chosen(arguments: Sequence[str], flag: str) -> str | None:
    """The value of a flag, before parsing."""
    for place, argument in enumerate(arguments):
        if argument == flag and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return None
