"""Plans as TOML files, to be written by hand: the same fields, settings nested or dotted."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mimex.envs.nearest import choose
from mimex.files import replacing
from mimex.study.plan import FIGURES, Plan, Scale, Settings

_FIELDS = ("about", "tasks", "seeds", "figure", "metric", "settings", "axes", "scales")
_NEEDED = ("tasks", "axes", "scales")
_SCALE_FIELDS = ("about", "settings", "tasks")


def read_plan(path: Path) -> Plan:
    """The plan of a TOML file, named after the file.

    Raises:
        ValueError: If the file is no TOML, or says what no plan can mean; the message names the
            place.
    """
    try:
        data = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    try:
        return plan_from(path.stem, data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def plan_from(name: str, data: Mapping[str, Any]) -> Plan:
    """The plan that nested tables say."""
    _require_fields("a field", data, _FIELDS, _NEEDED)
    tasks = _kind("tasks", data["tasks"], list)
    axes = {
        axis: {label: _flat(f"axes.{axis}.{label}", chosen) for label, chosen in choices.items()}
        for axis, choices in _tables("axes", data["axes"]).items()
    }
    scales = {}
    for scale, given in _tables("scales", data["scales"]).items():
        place = f"scales.{scale}"
        _require_fields(f"a field of {place}", given, _SCALE_FIELDS)
        by_task = _tables(f"{place}.tasks", given.get("tasks", {}))
        for task in by_task:
            choose(f"a task in {place}.tasks", task, tasks)
        scales[scale] = Scale(
            _kind(f"{place}.about", given.get("about", ""), str),
            _flat(f"{place}.settings", given.get("settings", {})),
            {task: _flat(f"{place}.tasks.{task}", chosen) for task, chosen in by_task.items()},
        )
    return Plan(
        name,
        about=_kind("about", data.get("about", ""), str),
        tasks=tuple(_kind("a task", task, str) for task in tasks),
        axes=axes,
        scales=scales,
        settings=_flat("settings", data.get("settings", {})),
        seeds=_kind("seeds", data.get("seeds", 7), int),
        figure=_kind("figure", data.get("figure", "curves"), str),
        metric=_kind("metric", data.get("metric", "eval/success"), str),
    )


def write_plan(plan: Plan, path: Path) -> None:
    """Writes a plan as TOML, with remarks for whoever changes it.

    Raises:
        FileExistsError: If the file exists.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists: remove it, or choose another name.")
    with replacing(path) as aside:
        aside.write_text(plan_text(replace(plan, name=path.stem)))


def plan_text(plan: Plan) -> str:
    """A plan as TOML."""
    lines = [
        f"# A study: mimex study run {plan.name}.toml",
        "# Its runs are all choices on all axes, for every task and seed. Settings are those of",
        "# `mimex train --help`: --mimex.mask-ratio 0.5 is mimex.mask_ratio = 0.5 here.",
        "",
        f"about = {_value(plan.about)}",
        f"tasks = {_value(plan.tasks)}",
        f"seeds = {plan.seeds}  # 0, 1, 2, ...",
        f"figure = {_value(plan.figure)}  # {', '.join(FIGURES)}",
        f"metric = {_value(plan.metric)}  # what is compared",
        "",
        "# Of every run.",
        *_table(("settings",), plan.settings),
    ]
    for axis, choices in plan.axes.items():
        lines += ["# What is compared: a label, and the settings that it means."]
        lines += [f"[axes.{_key(axis)}]"]
        lines += [f"{_key(label)} = {_inline(chosen)}" for label, chosen in choices.items()]
        lines += [""]
    for name, scale in plan.scales.items():
        lines += [f"# With --scale {name}. The budget is `steps`."]
        lines += [f"[scales.{_key(name)}]", f"about = {_value(scale.about)}", ""]
        lines += _table(("scales", name, "settings"), scale.settings)
        for task, chosen in scale.tasks.items():
            lines += _table(("scales", name, "tasks", task), chosen)
    return "\n".join(lines).rstrip() + "\n"


def _table(path: Sequence[str], settings: Settings) -> list[str]:
    rows = [f"{name} = {_value(value)}" for name, value in settings.items()]
    return [f"[{'.'.join(map(_key, path))}]", *rows, ""] if rows else []


def _inline(settings: Settings) -> str:
    inner = ", ".join(f"{name} = {_value(value)}" for name, value in settings.items())
    return f"{{ {inner} }}" if inner else "{}"


def _key(name: str) -> str:
    return (
        name
        if name.replace("-", "").replace("_", "").isalnum() and name.isascii()
        else _value(name)
    )


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    return json.dumps(value)  # whose strings, floats and booleans are TOML's


def _flat(place: str, table: Any, above: str = "") -> dict[str, Any]:
    """Settings by dotted name: a key with dots is a table inside a table to TOML."""
    flat: dict[str, Any] = {}
    for name, value in _kind(place, table, dict).items():
        if isinstance(value, dict):
            flat |= _flat(place, value, f"{above}{name}.")
        else:
            flat[(above + name).replace("-", "_")] = value
    return flat


def _tables(place: str, value: Any) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = _kind(place, value, dict)
    for name, table in tables.items():
        _kind(f"{place}.{name}", table, dict)
    return tables


def _kind(place: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {dict: "a table", list: "a list", str: "a text", int: "a whole number"}
        raise ValueError(f"{place} is {value!r}, but must be {words[kind]}")
    return value


def _require_fields(
    what: str, data: Mapping[str, Any], allowed: Sequence[str], needed: Sequence[str] = ()
) -> None:
    for name in data:
        choose(what, name, allowed)
    for name in needed:
        if name not in data:
            raise ValueError(f"{name} is missing; a plan needs {', '.join(needed)}")
