"""Settings of a class from the parameters of its constructor, with help texts from its docstring.

Used for bonuses, the scale of the bonus and the tasks; agents have explicit dataclasses.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, make_dataclass
from typing import Any, get_args, get_type_hints

import docstring_parser


def settings_of(kind: type[Any], only: Sequence[str] = ()) -> type[Any]:
    """A frozen dataclass of a class's settings: their types, defaults and explanations.

    Settings are the parameters with a default. Those that may be None are none: the class finds
    them out by itself, or they are objects that only a program can give. Neither are those that
    the class names in ``no_settings``.

    Args:
        kind: The class. Keyword arguments that it hands on (``**shared: Unpack[...]``) are those
            of the classes that it derives from.
        only: Names of the parameters that are settings, whatever their defaults.
    """
    parameters = _parameters(kind)
    chosen = only or [
        name
        for name, (_, default) in parameters.items()
        if default not in (None, MISSING) and name not in getattr(kind, "no_settings", ())
    ]
    words = {name: text for base in reversed(kind.__mro__) for name, text in _explained(base)}
    help_ = "\n".join(f"    {name}: {words.get(name, '')}" for name in chosen)
    summary = (inspect.getdoc(kind) or "").partition("\n")[0]
    return make_dataclass(
        f"{kind.__name__}Settings",
        [(name, *parameters[name]) for name in chosen],
        frozen=True,
        namespace={"__doc__": f"{summary}\n\nArgs:\n{help_}\n"},
    )


def _parameters(kind: type[Any]) -> dict[str, tuple[Any, Any]]:
    """Type and default of each parameter of a class's constructor by its name."""
    found: dict[str, tuple[Any, Any]] = {}
    handed_on: Mapping[str, Any] | None = None  # all, of the class itself
    for base in kind.__mro__:
        constructor = vars(base).get("__init__")
        if constructor is None or base is object:
            continue
        hints, shared = get_type_hints(constructor, include_extras=True), {}
        for name, parameter in list(inspect.signature(constructor).parameters.items())[1:]:
            default = MISSING if parameter.default is parameter.empty else parameter.default
            if parameter.kind is parameter.VAR_KEYWORD:
                shared = get_type_hints(get_args(hints[name])[0])
            elif handed_on is None or (name in handed_on and found.get(name, MISSING) is MISSING):
                found[name] = (hints.get(name, Any), default)
        handed_on = shared if handed_on is None else handed_on
    return found


def _explained(kind: type[Any]) -> list[tuple[str, str]]:
    """The parameters in a class's own docstring, and their descriptions in one line each."""
    parsed = docstring_parser.parse(vars(kind).get("__doc__") or "")
    return [(each.arg_name, " ".join((each.description or "").split())) for each in parsed.params]
