"""Conversion of settings to JSON and back, with type checks; also used for the plans of studies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from mimex.envs.nearest import choose

MAX_INT = 2**63 - 1
MAX_FLOAT = 3.4e38
"""Largest number of 32 bits, which networks compute with."""

JSON_TYPES: Mapping[Any, tuple[type, ...]] = {float: (int, float), Path: (str,)}
"""Types of JSON values for a setting's type; its own otherwise."""


def to_json(value: Any) -> Any:
    """Converts a value to JSON types."""
    if isinstance(value, dict):
        return {name: to_json(inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def from_json(kind: Any, value: Any, source: str = "config.json", name: str = "") -> Any:
    """Converts a JSON or TOML value to a type; an error names the first invalid setting.

    Args:
        kind: A dataclass, or the type of a setting.
        value: The value.
        source: Where it comes from, for errors.
        name: Dotted name of the setting.
    """
    origin, inner, prefix = get_origin(kind), get_args(kind), name and f"{name}."
    if is_dataclass(kind) and isinstance(value, Mapping):
        return _dataclass_from_json(kind, value, source, prefix)
    if origin is Mapping and isinstance(value, Mapping):
        return {key: from_json(inner[1], x, source, prefix + key) for key, x in value.items()}
    if origin is tuple and isinstance(value, list):
        return tuple(from_json(inner[0], item, source, name) for item in value)
    if origin in (Union, UnionType):
        for each in inner:
            with suppress(ValueError):
                return from_json(each, value, source, name)
    if kind is Any or (origin is Literal and value in inner):
        return value
    if type(value) in JSON_TYPES.get(kind, (kind,)):
        return Path(value) if kind is Path else value
    expected = kind.__name__ if isinstance(kind, type) and not inner else str(kind)
    if is_dataclass(kind) or origin is Mapping:
        expected = "a mapping of settings"
    raise ValueError(f"{source} has {value!r} for {name or 'all settings'}: expected {expected}")


def _dataclass_from_json(kind: Any, value: Mapping[str, Any], source: str, prefix: str) -> Any:
    hints = get_type_hints(kind)
    for each in fields(kind):
        if each.name not in value and each.default is each.default_factory is MISSING:
            raise ValueError(f"{source} lacks {prefix}{each.name}: restore or add it")
    where = f"a setting in {source}" + (f" under {prefix[:-1]}" if prefix else "")
    return kind(
        **{
            key: from_json(hints[choose(where, key, tuple(hints))], inner, source, prefix + key)
            for key, inner in value.items()
        }
    )


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
