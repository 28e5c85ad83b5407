"""Conversion of settings to JSON and back, with type checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from mimex.envs.nearest import choose

MAX_INT = 2**63 - 1
MAX_FLOAT = 3.4e38
"""Largest number of 32 bits, which networks compute with."""

Settings = TypeVar("Settings")


def to_json(value: Any) -> Any:
    """Converts a value to JSON types."""
    if isinstance(value, dict):
        return {name: to_json(inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def from_json(cls: type[Settings], data: Any, prefix: str = "") -> Settings:
    """Creates settings of a class from JSON; an error names the first invalid one."""
    if not isinstance(data, Mapping):
        raise ValueError(f"config.json has {data!r} for {prefix[:-1]}, but expected an object")
    kinds = get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, value in data.items():
        kind = kinds[choose("a setting in config.json", name, tuple(kinds))]
        if isinstance(kind, type) and is_dataclass(kind):
            values[name] = from_json(kind, value, f"{prefix}{name}.")
        elif not _matches(value, kind):
            expected = kind.__name__ if isinstance(kind, type) else kind
            raise ValueError(f"config.json has {value!r} for {prefix}{name}: expected {expected}")
        elif isinstance(value, list):
            values[name] = tuple(value)
        else:
            values[name] = Path(value) if value is not None and kind == Path | None else value
    return cls(**values)


def _matches(value: Any, kind: Any) -> bool:
    """Whether a JSON value has the type of a setting."""
    inner = get_args(kind)
    if get_origin(kind) is Literal:
        return value in inner
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(_matches(item, inner[0]) for item in value)
    if inner:  # a union
        return any(_matches(value, one) for one in inner)
    if kind is float:
        return type(value) in (int, float)
    return type(value) is (str if kind is Path else kind)


def require_finite(settings: Mapping[str, Any], prefix: str = "--") -> None:
    """Raises an error if a setting is not finite or too large."""
    for name, value in settings.items():
        flag = prefix + name.replace("_", "-")
        if isinstance(value, Mapping):
            require_finite(value, f"{flag}.")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{flag} is {number}, but must be finite")
            limit = MAX_FLOAT if isinstance(number, float) else MAX_INT
            if isinstance(number, int | float) and abs(number) > limit:
                raise ValueError(f"{flag} is {number}, but must be at most {limit} in size")
