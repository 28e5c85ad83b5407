"""The settings that `mimex train --help` shows: those that a user of the task needs most."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, fields, make_dataclass
from typing import Annotated, Any, get_type_hints

import tyro

from mimex.agents import agent_class
from mimex.config.run import TrainConfig

RUN = ("task", "agent", "bonus", "steps", "envs", "seed", "out", "preset", "device")
"""Settings of every run that are shown."""

USUAL = {
    "world": ("episode_steps", "engine"),
    "eval": ("every", "episodes"),
    "track": ("checkpoint_every", "loggers"),
}
"""Of sections with many settings, those that are shown, beside an agent's ``shown``; other sections
are shown whole."""


def brief(config: TrainConfig, bonus: str) -> Any:
    """The same settings as an object of a class whose help leaves out the less usual ones.

    Args:
        config: The settings, which the help shows as defaults.
        bonus: The bonus whose settings are shown.
    """
    family, of_agent = config.family, agent_class(config.agent).shown
    shown = {*RUN, *of_agent, *family.sections, "eval", "track"}
    shown |= {"reward"} if len(family.rewards) > 1 else set()
    shown |= {"observation"} if len(family.observations) > 1 else set()
    shown |= {bonus, "scale"} if bonus != "none" else set()
    return _showing(config, shown, USUAL | dict(of_agent))


def _showing(
    settings: Any, shown: Collection[str], usual: Mapping[str, Collection[str]] | None = None
) -> Any:
    """Settings of a class that declares the same, and of which tyro shows only some."""
    kind, hints = type(settings), get_type_hints(type(settings), include_extras=True)
    values, declared = {}, []
    for each in fields(settings):
        value, hint = getattr(settings, each.name), hints[each.name]
        if each.name not in shown:
            hint = Annotated[hint, tyro.conf.Suppress]
        elif usual is not None and each.name in usual:
            value = _showing(value, usual[each.name])
            hint = type(value)
        values[each.name] = value
        declared.append((each.name, hint, field(default=value)))
    shortened = make_dataclass(kind.__name__, declared, bases=(kind,), frozen=True)
    shortened.__doc__ = kind.__doc__
    return shortened(**values)
