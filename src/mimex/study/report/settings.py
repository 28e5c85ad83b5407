"""What runs were made with: settings that differ, settings that do not, versions, ablations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mimex.bonus import BONUSES
from mimex.study.labels import NO_METHOD
from mimex.study.runs import Group, Run
from mimex.train.flat import flat_settings

UNSET = "not set"
"""What the page shows for a setting that a run does not have."""


def compared_settings(groups: Sequence[Group]) -> dict[str, Any]:
    """Settings in which methods differ, by method, and those that all runs share.

    A method whose runs differ among themselves (by task, for example) has several values.
    """
    methods: dict[str, list[dict[str, str]]] = {}
    for group in groups:
        methods.setdefault(group.label, []).extend(_settings(run) for run in group.runs)
    names = list(dict.fromkeys(n for sets in methods.values() for s in sets for n in s))
    differ, same = [], []
    for name in names:
        values = {
            method: list(dict.fromkeys(settings.get(name, UNSET) for settings in sets))
            for method, sets in methods.items()
        }
        every = list(dict.fromkeys(v for found in values.values() for v in found))
        if len(every) > 1:
            differ.append({"name": name, "values": values})
        else:
            same.append({"name": name, "value": every[0]})
    return {"methods": list(methods), "differ": differ, "same": same}


def ablations(groups: Sequence[Group], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For every setting of the bonus, the loop or the agent that was varied: scores by its value.

    Args:
        groups: Runs by task and method.
        rows: The overview's rows of the same groups.
    """
    found = []
    for setting in _varied(groups):
        points = []
        for group, row in zip(groups, rows, strict=True):
            value = _settings(group.runs[0]).get(setting)
            if value is not None and row["final"] is not None and _counts(setting, group):
                points.append({"task": group.task, "method": group.label, "value": value})
                points[-1]["final"] = row["final"]
        values = sorted({point["value"] for point in points}, key=_order)
        if len(values) > 1:
            found.append({"setting": setting, "values": values, "points": points})
    return found


def versions(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every combination of versions, source revision and machine, with its runs."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        about = run.about
        key = {
            "versions": about.get("versions", {}),
            "revision": about.get("git_revision"),
            "platform": about.get("platform"),
            "cores": about.get("cores"),
        }
        entry = found.setdefault(json.dumps(key, sort_keys=True), key | {"runs": []})
        resumed = len(about.get("resumed", []))
        entry["runs"].append(
            {"name": run.name, "command": about.get("command"), "resumed": resumed}
        )
    return list(found.values())


def _settings(run: Run) -> dict[str, str]:
    flat = flat_settings(run.config)
    hidden = tuple(f"{name}." for name in NO_METHOD)
    return {n: v for n, v in flat.items() if n not in NO_METHOD and not n.startswith(hidden)}


def _varied(groups: Sequence[Group]) -> list[str]:
    """Settings below a section that differ between methods on the same task."""
    varied: dict[str, None] = {}
    for task in dict.fromkeys(group.task for group in groups):
        sets = [(group, _settings(group.runs[0])) for group in groups if group.task == task]
        for name in dict.fromkeys(n for _, settings in sets for n in settings if "." in n):
            values = {s[name] for group, s in sets if name in s and _counts(name, group)}
            if len(values) > 1:
                varied[name] = None
    return list(varied)


def _counts(setting: str, group: Group) -> bool:
    """Whether a setting matters to a group: not if it belongs to a bonus that is not used."""
    section, bonus = setting.partition(".")[0], group.runs[0].config.get("bonus")
    if section in BONUSES:
        return section == bonus
    return section != "scale" or bonus != "none"


def _order(value: str) -> tuple[int, float, str]:
    """Numbers by size, then words."""
    try:
        return 0, float(json.loads(value)), value
    except (ValueError, TypeError):
        return 1, 0.0, value
