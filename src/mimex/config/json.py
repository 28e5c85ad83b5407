"""Settings to JSON and back, checked against the types of the settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from mimex.envs.nearest import choose

LARGEST = 2**63 - 1
"""What 64 bits hold: no setting means more."""

LARGEST_FLOAT = 3.4e38
"""What a number of 32 bits holds, with which networks calculate."""

Settings = TypeVar("Settings")


def plain(value: Any) -> Any:
    """A JSON value."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def build(cls: type[Settings], data: Any, above: str = "") -> Settings:
    """Settings of a class from what JSON said; an error that names the first that does not fit."""
    if not isinstance(data, Mapping):
        raise ValueError(
            f"config.json has {data!r} for {above[:-1]}, but expected settings by name"
        )
    kinds = get_type_hints(cls)
    chosen: dict[str, Any] = {}
    for name, value in data.items():
        choose("a setting in config.json", name, tuple(kinds))
        kind = kinds[name]
        if isinstance(kind, type) and is_dataclass(kind):
            chosen[name] = build(kind, value, f"{above}{name}.")
            continue
        if not _fits(value, kind):
            raise ValueError(f"config.json has {value!r} for {above}{name}: expected {_name(kind)}")
        if isinstance(value, list):
            chosen[name] = tuple(value)
        else:
            path = value is not None and kind == Path | None
            chosen[name] = Path(value) if path else value
    return cls(**chosen)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value that JSON gave is of a setting's kind."""
    inner = get_args(kind)
    if get_origin(kind) is Literal:
        return value in inner
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(_fits(item, inner[0]) for item in value)
    if inner:  # one of several
        return any(_fits(value, one) for one in inner)
    if kind is float:
        return type(value) in (int, float)
    return type(value) is (str if kind is Path else kind)


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def require_numbers(settings: Mapping[str, Any], above: str = "--") -> None:
    """Raises an error if a setting is no number that can be calculated with."""
    for name, value in settings.items():
        flag = above + name.replace("_", "-")
        if isinstance(value, Mapping):
            require_numbers(value, f"{flag}.")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{flag} is {number}, but must be a finite number")
            if isinstance(number, float) and abs(number) > LARGEST_FLOAT:
                raise ValueError(f"{flag} is {number}, but must be at most {LARGEST_FLOAT} in size")
            if isinstance(number, int) and not -LARGEST <= number <= LARGEST:
                raise ValueError(f"{flag} is {number}, but must be at most {LARGEST}")
