"""From the words of a command line to settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tyro

from mimex.config.presets import preset
from mimex.config.run import TrainConfig, of_suite
from mimex.envs.settings import TASKS

_FREE_TEXT = ("--out", "--vision.checkpoint", "--track.wandb", "--track.trackio")


def parse(arguments: Sequence[str], prog: str = "mimex train") -> TrainConfig:
    """The settings that a command line asks for; the others are those of its preset."""
    name, observation = _chosen(arguments, "--preset"), _chosen(arguments, "--observation")
    chosen = preset(name or "cpu", observation, _task(arguments))
    missing: Any = tyro.MISSING  # or the help would not ask for it
    return tyro.cli(TrainConfig, args=arguments, default=replace(chosen, task=missing), prog=prog)


def _task(arguments: Sequence[str]) -> str:
    """The task among the arguments, before they can be read: defaults depend on it."""
    pairs = zip(["", *arguments], arguments, strict=False)
    tasks = (word for before, word in pairs if before not in _FREE_TEXT)
    return next((word for word in tasks if of_suite(word) or word in TASKS), "")


def _chosen(arguments: Sequence[str], flag: str) -> str | None:
    """What a flag says, before the rest can be read."""
    for place, argument in enumerate(arguments):
        if argument == flag and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return None
