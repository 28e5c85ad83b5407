"""Names for methods, made of the settings in which runs differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mimex.bonus import BONUSES
from mimex.train.flat import flat_settings

NO_METHOD = ("task", "seed", "out", "threads", "track")
"""Settings that do not make another method."""

FIRST = ("bonus", "reward", "agent", "observation", "preset")
"""Settings that name a method best, and are tried first."""


def method_labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names the method of every run by the fewest settings that tell the runs of a task apart.

    Settings are taken one by one, and only where they part runs that were alike so far. Those of
    a bonus that a run does not use are no difference.

    Args:
        configs: Nested settings of every run.
    """
    methods = [_method(config) for config in configs]
    names = list(dict.fromkeys(name for method in methods for name in method))
    names.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    told: list[tuple[str, ...]] = [(str(config.get("task")),) for config in configs]
    for name in names:
        values: dict[tuple[str, ...], set[str]] = {}
        for method, before in zip(methods, told, strict=True):
            values.setdefault(before, set()).add(method.get(name, ""))
        if any(len(seen) > 1 for seen in values.values()):
            words = [_words(name, method[name]) if name in method else "" for method in methods]
            told = [(*before, word) for before, word in zip(told, words, strict=True)]
    labels = [", ".join(filter(None, words)) for _, *words in told]
    plain = [str(config.get("bonus", "all runs")) for config in configs]
    return [label or alone for label, alone in zip(labels, plain, strict=True)]


def natural(label: str) -> tuple[Any, ...]:
    """A key that sorts labels: no bonus first, and numbers by their size."""
    parts = re.split(r"(\d+(?:\.\d+)?)", label)
    # Words and numbers alternate, so that like is compared with like.
    told = (float(part) if place % 2 else part for place, part in enumerate(parts))
    return (not label.startswith("none"), *told)


def _method(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings that make a run's method."""
    bonus = config.get("bonus")
    unused = {name for name in BONUSES if name != bonus} | ({"scale"} if bonus == "none" else set())
    return flat_settings(
        {name: v for name, v in config.items() if name not in unused and name not in NO_METHOD}
    )


def _words(name: str, value: str) -> str:
    """How a label tells a setting: ``mimex``, ``length 5``."""
    text = value.strip('"')
    return text if name in FIRST else f"{name.rpartition('.')[2].replace('_', ' ')} {text}"
