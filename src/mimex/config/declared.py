"""Settings of a class from its constructor, with help texts from its docstring.

Used for bonuses, the scale of the bonus and the tasks. Agents have explicit dataclasses.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, make_dataclass
from typing import Any, get_args, get_type_hints

import docstring_parser


def settings_of(kind: type[Any], only: Sequence[str] = ()) -> type[Any]:
    """Returns a frozen dataclass of a class's settings: their types, defaults and help texts.

    Settings are the parameters with a default, except those whose default is None and those that
    the class lists in ``no_settings``.

    Args:
        kind: The class. Its ``**shared: Unpack[...]`` are parameters of its base classes.
        only: Names of the parameters that are settings, whatever their defaults.
    """
    parameters = _parameters(kind)
    names = only or [
        name
        for name, (_, default) in parameters.items()
        if default not in (None, MISSING) and name not in getattr(kind, "no_settings", ())
    ]
    texts = {name: text for base in reversed(kind.__mro__) for name, text in _descriptions(base)}
    args = "\n".join(f"    {name}: {texts.get(name, '')}" for name in names)
    summary = (inspect.getdoc(kind) or "").partition("\n")[0]
    return make_dataclass(
        f"{kind.__name__}Settings",
        [(name, *parameters[name]) for name in names],
        frozen=True,
        namespace={"__doc__": f"{summary}\n\nArgs:\n{args}\n"},
    )


def _parameters(kind: type[Any]) -> dict[str, tuple[Any, Any]]:
    """Type and default of each constructor parameter by name."""
    found: dict[str, tuple[Any, Any]] = {}
    inherited: Mapping[str, Any] | None = None  # parameters that base classes may add
    for base in kind.__mro__:
        constructor = vars(base).get("__init__")
        if constructor is None or base is object:
            continue
        hints, shared = get_type_hints(constructor, include_extras=True), {}
        for name, parameter in list(inspect.signature(constructor).parameters.items())[1:]:
            default = MISSING if parameter.default is parameter.empty else parameter.default
            if parameter.kind is parameter.VAR_KEYWORD:
                shared = get_type_hints(get_args(hints[name])[0])
            elif inherited is None or (name in inherited and found.get(name, MISSING) is MISSING):
                found[name] = (hints.get(name, Any), default)
        inherited = shared if inherited is None else inherited
    return found


def _descriptions(kind: type[Any]) -> list[tuple[str, str]]:
    """Names and descriptions of the parameters in a class's own docstring."""
    parsed = docstring_parser.parse(vars(kind).get("__doc__") or "")
    return [(each.arg_name, " ".join((each.description or "").split())) for each in parsed.params]
