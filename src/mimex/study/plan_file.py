"""Plans as TOML files: those in ``plans/`` and the user's own, in the same format."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mimex.envs.nearest import choose
from mimex.files import replacing
from mimex.study.plan import Plan, Scale

PLANS = {path.stem: path for path in sorted(Path(__file__).with_name("plans").glob("*.toml"))}
"""Files of the built-in plans by name."""

_PLAN_FIELDS = {
    "about": str,
    "tasks": list,
    "seeds": int,
    "first_seed": int,
    "metric": str,
    "settings": dict,
    "axes": dict,
    "scales": dict,
}
_NEEDED = ("tasks", "axes", "scales")
_SCALE_FIELDS = {"about": str, "settings": dict, "tasks": dict}


def find_plan(name: str) -> Plan:
    """Returns a built-in plan by its name, or a user's plan by its file."""
    path = Path(name)
    if path.suffix != ".toml":
        return read_plan(PLANS[choose("the plan", name, tuple(PLANS))])
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; mimex study init {path} writes it.")
    return read_plan(path)


def read_plan(path: Path) -> Plan:
    """Reads the plan of a TOML file, named after the file.

    Raises:
        ValueError: If the file is not TOML or not a plan; the message names the field.
    """
    try:
        return _plan(path.stem, tomllib.loads(path.read_bytes().decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply for a plan") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def copy_plan(name: str, path: Path) -> None:
    """Copies the file of a built-in plan.

    Raises:
        FileExistsError: If the file exists.
    """
    text = PLANS[choose("the plan", name, tuple(PLANS))].read_bytes()
    if path.exists():
        raise FileExistsError(f"{path} exists: remove it, or choose another name.")
    with replacing(path) as aside:
        aside.write_bytes(text)


def _plan(name: str, data: Mapping[str, Any]) -> Plan:
    _require_fields("a field", "", data, _PLAN_FIELDS)
    for needed in _NEEDED:
        if needed not in data:
            raise ValueError(f"{needed} is missing; a plan needs {', '.join(_NEEDED)}")
    tasks = tuple(_kind("a task", task, str) for task in data["tasks"])
    axes = {
        axis: {
            label: _flat(f"axes.{axis}.{label}", chosen)
            for label, chosen in _kind(f"axes.{axis}", choices, dict).items()
        }
        for axis, choices in data["axes"].items()
    }
    scales = {scale: _scale(f"scales.{scale}", x, tasks) for scale, x in data["scales"].items()}
    settings = _flat("settings", data.get("settings", {}))
    read = {"tasks": tasks, "axes": axes, "scales": scales, "settings": settings}
    return Plan(name, **{**data, **read})


def _scale(where: str, given: Any, tasks: Sequence[str]) -> Scale:
    _require_fields(f"a field of {where}", f"{where}.", _kind(where, given, dict), _SCALE_FIELDS)
    by_task = given.get("tasks", {})
    for task in by_task:
        choose(f"a task in {where}.tasks", task, tasks)
    return Scale(
        given.get("about", ""),
        _flat(f"{where}.settings", given.get("settings", {})),
        {task: _flat(f"{where}.tasks.{task}", chosen) for task, chosen in by_task.items()},
    )


def _require_fields(what: str, above: str, data: Any, kinds: Mapping[str, type]) -> None:
    for name, value in data.items():
        _kind(above + name, value, kinds[choose(what, name, tuple(kinds))])


def _kind(where: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {dict: "a table", list: "a list", str: "a string", int: "an integer"}
        raise ValueError(f"{where} is {value!r}, but must be {words[kind]}")
    return value


def _flat(where: str, table: Any, above: str = "") -> dict[str, Any]:
    """Returns settings by dotted name: TOML reads a dotted key as nested tables."""
    flat: dict[str, Any] = {}
    for name, value in _kind(where, table, dict).items():
        if isinstance(value, dict):
            flat |= _flat(where, value, f"{above}{name}.")
        else:
            flat[(above + name).replace("-", "_")] = value
    return flat
