"""Plans as TOML files, settings nested or dotted: the paper's figures, and anybody's own.

Those of the paper are in the folder beside this file, each with two scales. ``paper`` has the
published setting: pictures through a frozen ViT, raw bonus with beta 0.05, and the released code's
budgets. ``cpu`` learns from state, with budgets that two cores can pay; its hours are reckoned from
the speeds in benchmarks/results/train.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mimex.envs.nearest import choose
from mimex.files import replacing
from mimex.study.plan import Plan, Scale

PLANS = {path.stem: path for path in sorted(Path(__file__).with_name("plans").glob("*.toml"))}
"""The files of the plans that come with mimex, by name."""

_PLAN_FIELDS = {
    "about": str,
    "tasks": list,
    "seeds": int,
    "first_seed": int,
    "figure": str,
    "metric": str,
    "settings": dict,
    "axes": dict,
    "scales": dict,
}
_NEEDED = ("tasks", "axes", "scales")
_SCALE_FIELDS = {"about": str, "settings": dict, "tasks": dict}


def find_plan(name: str) -> Plan:
    """A plan of ours by its name, or a user's by its file."""
    path = Path(name)
    if path.suffix != ".toml":
        return read_plan(PLANS[choose("the plan", name, tuple(PLANS))])
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; mimex study init {path} makes it.")
    return read_plan(path)


def read_plan(path: Path) -> Plan:
    """The plan of a TOML file, named after the file.

    Raises:
        ValueError: If the file is no TOML, or says what no plan can mean; the message names the
            place.
    """
    if not path.is_file():  # a pipe would be waited for
        raise OSError(f"{path} is no regular file: give a TOML file (mimex study init makes one).")
    try:
        return _plan(path.stem, tomllib.loads(path.read_bytes().decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply: no plan needs that") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def copy_plan(name: str, path: Path) -> None:
    """Writes the file of a plan of ours, for its reader to change.

    Raises:
        FileExistsError: If the file exists.
    """
    text = PLANS[choose("the plan", name, tuple(PLANS))].read_bytes()
    if path.exists():
        raise FileExistsError(f"{path} exists: remove it, or choose another name.")
    with replacing(path) as aside:
        aside.write_bytes(text)


def _plan(name: str, data: Mapping[str, Any]) -> Plan:
    """The plan that nested tables say."""
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


def _scale(place: str, given: Any, tasks: Sequence[str]) -> Scale:
    _require_fields(f"a field of {place}", f"{place}.", _kind(place, given, dict), _SCALE_FIELDS)
    by_task = given.get("tasks", {})
    for task in by_task:
        choose(f"a task in {place}.tasks", task, tasks)
    return Scale(
        given.get("about", ""),
        _flat(f"{place}.settings", given.get("settings", {})),
        {task: _flat(f"{place}.tasks.{task}", chosen) for task, chosen in by_task.items()},
    )


def _require_fields(what: str, above: str, data: Any, kinds: Mapping[str, type]) -> None:
    for name, value in data.items():
        _kind(above + name, value, kinds[choose(what, name, tuple(kinds))])


def _kind(place: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {dict: "a table", list: "a list", str: "a text", int: "a whole number"}
        raise ValueError(f"{place} is {value!r}, but must be {words[kind]}")
    return value


def _flat(place: str, table: Any, above: str = "") -> dict[str, Any]:
    """Settings by dotted name: a key with dots is a table inside a table to TOML."""
    flat: dict[str, Any] = {}
    for name, value in _kind(place, table, dict).items():
        if isinstance(value, dict):
            flat |= _flat(place, value, f"{above}{name}.")
        else:
            flat[(above + name).replace("-", "_")] = value
    return flat
