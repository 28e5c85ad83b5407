"""The settings that `mimex train --help` shows: those that a user of the task needs most."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, fields, is_dataclass, make_dataclass
from typing import Annotated, Any, get_type_hints

import tyro

from mimex.config.families import family_of
from mimex.config.run import TrainConfig

RUN = ("task", "agent", "bonus", "steps", "envs", "seed", "out", "preset", "device")
"""Settings of every run that are shown."""

USUAL = {
    "ppo": ("lr", "epochs", "minibatches", "clip", "entropy_coef", "discount"),
    "loop": ("rollout_steps",),
    "drqv2": ("lr", "batch", "n_step", "discount", "std_steps", "hidden"),
    "world": ("episode_steps", "engine"),
    "eval": ("every", "episodes"),
    "track": ("checkpoint_every", "tensorboard"),
}
"""Of sections with many settings, those that are shown; other sections are shown whole."""

OF_AGENT = {"ppo": ("ppo", "loop"), "drqv2": ("drqv2",)}
"""The sections of an agent."""


def brief(config: TrainConfig, bonus: str) -> Any:
    """The same settings as an object of a class whose help leaves out the less usual ones.

    Args:
        config: The settings, which the help shows as defaults.
        bonus: The bonus whose settings are shown.
    """
    family = family_of(config.task)
    shown = {*RUN, *OF_AGENT[config.agent], *family.sections, "eval", "track"}
    shown |= {"reward"} if len(family.rewards) > 1 else set()
    shown |= {"observation"} if len(family.observations) > 1 else set()
    shown |= {bonus, "scale"} if bonus != "none" else set()
    return _showing(config, shown)


def _showing(settings: Any, shown: Collection[str]) -> Any:
    """Settings of a class that declares the same, and of which tyro shows only some."""
    kind, hints = type(settings), get_type_hints(type(settings), include_extras=True)
    values, declared = {}, []
    for each in fields(settings):
        value, hint = getattr(settings, each.name), hints[each.name]
        if each.name not in shown:
            hint = Annotated[hint, tyro.conf.Suppress]
        elif is_dataclass(value) and each.name in USUAL:
            value = _showing(value, USUAL[each.name])
            hint = type(value)
        values[each.name] = value
        declared.append((each.name, hint, field(default=value)))
    shortened = make_dataclass(kind.__name__, declared, bases=(kind,), frozen=True)
    shortened.__doc__ = kind.__doc__
    return shortened(**values)
