"""Presets, and the command line of `mimex train`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, fields, make_dataclass, replace
from typing import Annotated, Any, get_type_hints

import tyro

from mimex.agents import AGENTS, agent_class
from mimex.bonus import BONUSES
from mimex.config.families import FAMILIES, family_of
from mimex.config.families.base import merged
from mimex.config.run import PRESETS, TrainConfig
from mimex.envs.nearest import choose

_HELP_ALL = "--help-all"

_DESCRIPTION = f"""Train an agent on a task with an exploration bonus, or resume a run.

TASK --help: the most important settings, with the defaults of the task.

TASK --bonus BONUS --help: also those of the bonus.

TASK {_HELP_ALL}: all settings."""

_FREE_TEXT = ("--out", "--vision.checkpoint", "--track.project")

_SHOWN = ("task", "agent", "bonus", "steps", "envs", "seed", "out", "preset", "device")
"""Settings that --help shows for every run."""

_SHOWN_IN_SECTION = {
    "world": ("episode_steps", "lift", "engine"),
    "eval": ("every", "episodes"),
    "track": ("checkpoint_every", "loggers"),
}
"""Settings that --help shows of some sections; agents have their own ``shown``. Other sections are
shown completely."""


def preset(
    name: str,
    observation: str | None = None,
    task: str = "",
    agent: str | None = None,
    reward: str | None = None,
) -> TrainConfig:
    """Returns the defaults of one of ``PRESETS``, which depend on the other arguments.

    By default, they are for any task of PixMC-Sparse, the agent of the task's family, and the
    observation and reward of the preset.
    """
    choose("--preset", name, PRESETS)
    family = family_of(task)
    agent = choose("--agent", agent or family.agent, tuple(AGENTS))
    config = TrainConfig(task=task, agent=agent, preset=name)
    chosen: TrainConfig = merged(config, family.preset(name, agent, observation, task, reward))
    return chosen


def parse(arguments: Sequence[str], prog: str = "mimex train") -> TrainConfig:
    """Parses a command line; the other settings are those of its preset."""
    name, observation, agent, reward = (
        _value(arguments, flag) for flag in ("--preset", "--observation", "--agent", "--reward")
    )
    config = preset(name or "cpu", observation, _task(arguments), agent, reward)
    if _HELP_ALL in arguments:
        arguments = ["--help"]
    elif {"-h", "--help"} & set(arguments):
        bonus = choose("--bonus", _value(arguments, "--bonus") or config.bonus, tuple(BONUSES))
        config, arguments = _with_short_help(config, bonus), ["--help"]
    missing: Any = tyro.MISSING  # makes tyro require the task
    config = replace(config, task=missing)
    config = tyro.cli(
        type(config), args=arguments, default=config, prog=prog, description=_DESCRIPTION
    )
    if config.curriculum and _value(arguments, "--reward") is None:
        config = replace(config, reward=config.curriculum[-1])
    return config


def _task(arguments: Sequence[str]) -> str:
    """Finds the task before parsing, since defaults depend on it."""
    pairs = zip(["", *arguments], arguments, strict=False)
    words = (word for previous, word in pairs if previous not in _FREE_TEXT)
    return next((word for word in words if _is_task(word)), "")


def _is_task(word: str) -> bool:
    return any(
        word.startswith(family.prefix) if family.prefix else word in family.tasks()
        for family in FAMILIES
    )


def _value(arguments: Sequence[str], flag: str) -> str | None:
    """Finds the value of a flag before parsing."""
    for index, argument in enumerate(arguments):
        if argument == flag and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return None


def _with_short_help(config: TrainConfig, bonus: str) -> Any:
    """Returns the same settings in a class whose --help shows only the most important ones."""
    family, of_agent = config.family, agent_class(config.agent).shown
    shown = {*_SHOWN, *of_agent, *family.sections, "eval", "track"}
    shown |= {"reward"} if len(family.rewards) > 1 else set()
    shown |= {"observation"} if len(family.observations) > 1 else set()
    shown |= {bonus, "scale"} if bonus != "none" else set()
    return _suppress(config, shown, _SHOWN_IN_SECTION | dict(of_agent))


def _suppress(
    settings: Any, shown: Collection[str], sections: Mapping[str, Collection[str]] | None = None
) -> Any:
    """Returns the same settings in a subclass whose other fields tyro does not show."""
    kind, hints = type(settings), get_type_hints(type(settings), include_extras=True)
    values, declared = {}, []
    for each in fields(settings):
        value, hint = getattr(settings, each.name), hints[each.name]
        if each.name not in shown:
            hint = Annotated[hint, tyro.conf.Suppress]
        elif sections is not None and each.name in sections:
            value = _suppress(value, sections[each.name])
            hint = type(value)
        values[each.name] = value
        declared.append((each.name, hint, field(default=value)))
    subclass = make_dataclass(kind.__name__, declared, bases=(kind,), frozen=True)
    subclass.__doc__ = kind.__doc__
    return subclass(**values)
