"""Tables and figures from the curves of `benchmarks/results/curves`.

    python -m benchmarks.tables              every page of benchmarks/tables.toml
    python -m benchmarks.tables suite gate   some of them

A page is `benchmarks/results/NAME.md` and, if it has a figure, `NAME.png`. `tables.toml` says which
tables it has: the kind (`KINDS`), the curves and the statistics in the cells (`STATS`). Means over
seeds are interquartile means with 95 % intervals (`mimex.study.statistics`).
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from benchmarks import curves
from mimex.study.figures import (
    STYLE,
    by_task,
    draw_curves,
    draw_panels,
    note_on,
    print_styles,
    save,
    title,
)
from mimex.study.groups import Group, bounds, final_scores
from mimex.study.runs import Floats, Run
from mimex.study.statistics import (
    area_under_curve,
    final_value,
    interval,
    probability_of_improvement,
)
from mimex.study.survival import METRIC as FIRST_REWARD
from mimex.study.survival import durations_of, log_rank, median

PAGES = Path(__file__).with_suffix(".toml")
RESULTS = Path(__file__).parent / "results"
SUCCESS = "eval/success"
SOLVED, UNSOLVED = 0.5, 0.1
"""Success rates from which a task counts as learned, and up to which it counts as not learned."""

MILESTONES = {"lift": "lifted", "open": "opened", "goal": "reached"}
"""Events on the way to a success, by the name of their reward; the first that a task has counts."""

Line = Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table of a page, as tables.toml has it.

    Attributes:
        kind: One of `KINDS`.
        text: Markdown before the table.
        sources: Arguments of `curves.read_groups`, one mapping per file of curves.
        cell: Statistics of each cell, for the kind "pivot".
        mean: Metric whose area by seed is also averaged over tasks, for the kind "pivot".
        columns: Statistics by column title, for the kind "rows".
        per_run: One row per run instead of one per task and method, for the kind "rows".
        ours: The method that is compared with the others.
        metric: Metric that methods are compared by.
        gated: Tasks that also have a column of their own together.
        floor: Smallest value of the metric, at which intervals are cut off.
        options: Arguments of the kinds "share" and "budget".
    """

    kind: str
    text: str = ""
    sources: Sequence[Mapping[str, Any]] = ()
    cell: Sequence[str] = ()
    mean: str = ""
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    per_run: bool = False
    ours: str = "mimex"
    metric: str = SUCCESS
    gated: Sequence[str] = ()
    floor: float = -np.inf
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """The figure of a page, as tables.toml has it: one panel per task and metric."""

    metrics: Sequence[str] = (SUCCESS,)
    sources: Sequence[Mapping[str, Any]] = ()
    columns: int = 3


class Scores:
    """Scores of the runs of a table, cut at the shortest budget of each task."""

    def __init__(self, groups: Sequence[Group], floor: float) -> None:
        self._groups, self._floor = groups, floor
        self._found: dict[Any, dict[str, dict[str, Floats]]] = {}

    def of(self, group: Group, metric: str, score: Callable[..., float]) -> Floats:
        """Return one score per run of a group; empty if none has reported the metric."""
        if (metric, score) not in self._found:
            self._found[metric, score] = final_scores(self._groups, metric, score)
        return self._found[metric, score].get(group.label, {}).get(group.task, np.empty(0))

    def aggregate(self, group: Group, metric: str, score: Callable[..., float]) -> str:
        """Return the interquartile mean over the runs of a group, with its interval."""
        found = self.of(group, metric, score)
        if len(found) < 2:
            return _listed(metric, found)
        estimate = interval({"": found})
        low, high = bounds(metric)
        ends = np.clip([estimate.low, estimate.high], max(low, self._floor), high)
        unit = " %" if np.isfinite(high) else ""
        value, *ends = (_number(metric, x) for x in (estimate.value, *ends))
        return f"{value}{unit} ({' to '.join(ends)})"


def _number(metric: str, value: float) -> str:
    """A rate in per cent, without its sign; another value with three digits."""
    if np.isfinite(bounds(metric)[1]):
        return f"{100 * value:.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _listed(metric: str, values: Sequence[float] | Floats) -> str:
    unit = " %" if len(values) and np.isfinite(bounds(metric)[1]) else ""
    return ", ".join(_number(metric, value) for value in values) + unit


def _thousands(steps: float | None) -> str:
    if steps is None:
        return "never"
    return f"{steps:.0f}" if steps < 1000 else f"{steps / 1000:,.0f}k"


def _curves(group: Group, metric: str) -> list[tuple[Floats, Floats]]:
    return [curve for run in group.runs if len((curve := run.curve(metric))[0])]


def solved(group: Group) -> int:
    """Return how many runs succeed in at least half of the last evaluation's episodes."""
    return sum(values[-1] >= SOLVED for _, values in _curves(group, SUCCESS))


def reached(group: Group, metric: str, level: float) -> str:
    """Return the step of each run's first evaluation at a level."""
    hits = [steps[values >= level] for steps, values in _curves(group, metric)]
    return ", ".join(_thousands(hit[0] if len(hit) else None) for hit in hits)


def met(group: Group, metric: str) -> str:
    """Return how many runs had an event, such as a first reward."""
    waits = durations_of(group.runs, metric)
    return f"{waits.observed.sum()} of {len(waits.observed)}"


def final_mean(group: Group, metric: str) -> float | None:
    """Return the mean over runs of the final value, or None if no run logged the metric."""
    finals = [final_value(*curve) for curve in _curves(group, metric)]
    return float(np.mean(finals)) if finals else None


def milestone(group: Group) -> str:
    """Return the final share of training episodes that reached the first event of the task."""
    for name, words in MILESTONES.items():
        rate = final_mean(group, f"train/reached_{name}")
        if rate is not None:
            return f"{words} {rate:.0%}"
    return "not reported"


def mean(group: Group, metric: str) -> str:
    """Return the mean over runs of the value at the end."""
    value = final_mean(group, metric)
    if value is None:
        return "not reported"
    return f"{value:.1%}" if np.isfinite(bounds(metric)[1]) else f"{value:.0f}"


def _tail(values: Floats, share: float) -> float:
    return float(values[-max(1, int(share * len(values))) :].mean())


STATS: dict[str, Callable[..., str]] = {  # of a group g, the table's scores s and a metric m
    "runs": lambda g, s: str(len(g.runs)),
    "steps": lambda g, s: f"{min(run.columns['step'][-1] for run in g.runs):,.0f}",
    "solved": lambda g, s: f"{solved(g)} of {len(g.runs)}",
    "final": lambda g, s, m: s.aggregate(g, m, final_value),
    "area": lambda g, s, m: s.aggregate(g, m, area_under_curve),
    "mean": lambda g, s, m: mean(g, m),
    "finals": lambda g, s, m: _listed(m, s.of(g, m, final_value)),
    "areas": lambda g, s, m: _listed(m, s.of(g, m, area_under_curve)),
    "last": lambda g, s, m: _listed(m, [y[-1] for _, y in _curves(g, m)]),
    "best": lambda g, s, m: _listed(m, [y.max() for _, y in _curves(g, m)]),
    "tail": lambda g, s, m, share: _listed(m, [_tail(y, float(share)) for _, y in _curves(g, m)]),
    "reached": lambda g, s, m, level: reached(g, m, float(level)),
    "first": lambda g, s, m: _thousands(median(durations_of(g.runs, m))),
    "met": lambda g, s, m: met(g, m),
    "milestone": lambda g, s: milestone(g),
    "command": lambda g, s, study: f"`mimex study run {study} --tasks {g.task} --only '{g.label}'`",
}
"""Statistics of a task and method by name: "final" and "area" are the value over the last tenth of
the steps and the mean height of the curve, over seeds; "finals", "areas", "last", "best", "tail"
and "reached" list one value per seed; "first" is the median step of an event, "met" its count;
"command" repeats the runs."""


def cell(stats: Sequence[str], group: Group, scores: Scores) -> str:
    """Return the statistics of a group, each given as its name and its arguments."""
    parts = []
    for words in stats:
        name, *arguments = words.split()
        parts.append(STATS[name](group, scores, *arguments))
    return "; ".join(parts)


def pivot(table: Table, groups: Sequence[Group]) -> list[Line]:
    """Methods by tasks."""
    scores, tasks = Scores(groups, table.floor), list(by_task(groups))
    found = {(group.label, group.task): group for group in groups}
    lines = [["", *tasks, *(["mean"] if table.mean else [])]]
    for label in dict.fromkeys(group.label for group in groups):
        areas = [
            scores.of(found[label, task], table.mean, area_under_curve)
            for task in tasks
            if table.mean and (label, task) in found
        ]
        means = np.mean(areas, axis=0) if len(areas) == len(tasks) else np.empty(0)
        cells = [
            cell(table.cell, found[label, task], scores) if (label, task) in found else ""
            for task in tasks
        ]
        lines.append([label, *cells, *([_listed(table.mean, means)] if table.mean else [])])
    return lines


def rows(table: Table, groups: Sequence[Group]) -> list[Line]:
    """One row per task and method, or per run, and one column per statistic."""
    scores = Scores(groups, table.floor)
    head = ["task", "method", *(["seed"] if table.per_run else []), *table.columns]
    lines: list[Line] = [head]
    for group in groups:
        parts = [Group(group.task, group.label, (run,)) for run in group.runs]
        for part in parts if table.per_run else [group]:
            own = Scores([part], table.floor) if table.per_run else scores
            seed = [str(part.runs[0].seed)] if table.per_run else []
            cells = [cell(stats, part, own) for stats in table.columns.values()]
            lines.append([group.task, group.label, *seed, *cells])
    return lines


def improvement(table: Table, groups: Sequence[Group]) -> list[Line]:
    """How probably a run of one method has the larger area, by task, over gated ones and all.

    Tasks on which a method has less than two runs are left out.
    """
    scores = {
        label: {task: x for task, x in by.items() if len(x) > 1}
        for label, by in final_scores(groups, table.metric, area_under_curve).items()
    }
    ours = scores[table.ours]
    tasks = [task for task in by_task(groups) if task in ours]
    lines = [["against", *tasks, *(["gated"] if table.gated else []), "all"]]
    for label, theirs in scores.items():
        shared = [task for task in tasks if task in theirs]
        if label == table.ours or not shared:
            continue
        cells = []
        for chosen in [
            *([task] for task in tasks),
            *([table.gated] if table.gated else []),
            shared,
        ]:
            if set(chosen) <= set(shared):
                found = probability_of_improvement(
                    {task: ours[task] for task in chosen}, {task: theirs[task] for task in chosen}
                )
                cells.append(f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})")
            else:
                cells.append("")
        lines.append([label, *cells])
    return lines


def log_rank_tests(table: Table, groups: Sequence[Group]) -> list[Line]:
    """Log-rank tests of the steps to an event, such as the first reward, by task."""
    metric = FIRST_REWARD if table.metric == SUCCESS else table.metric
    waits = {(group.label, group.task): durations_of(group.runs, metric) for group in groups}
    tasks = list(by_task(groups))
    lines = [["against", *tasks]]
    for label in dict.fromkeys(group.label for group in groups):
        if label == table.ours:
            continue
        cells = []
        for task in tasks:
            if {(table.ours, task), (label, task)} <= waits.keys():
                found = log_rank({"": waits[table.ours, task]}, {"": waits[label, task]})
                ahead = "earlier" if found.statistic > 0 else "later"
                cells.append(f"{ahead}, p = {found.p:.2g}")
            else:
                cells.append("")
        lines.append([label, *cells])
    return lines


def share(table: Table, groups: Sequence[Group]) -> list[Line]:
    """Mean return as a share of that of a base method, with each seed's last success.

    The options are `base`, and by task `budgets` (steps) and `every` (steps between evaluations
    that count, with a default under ""). Runs that did not reach the budget are left out.
    """
    budgets, every = table.options["budgets"], table.options["every"]
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for group in groups:
        for run in group.runs:
            steps, returns = run.curve("eval/return")
            gap = every.get(group.task, every[""])
            # Evaluations come with the first update after their step.
            counted = (steps % gap < gap / 8) & (steps <= 1.07 * budgets[group.task])
            if counted.any() and steps[counted][-1] >= budgets[group.task]:
                last = run.curve(SUCCESS)[1][counted][-1]
                ends = found.setdefault(group.label, {}).setdefault(group.task, [])
                ends.append((float(returns[counted].mean()), float(last)))
    base = found[table.options["base"]]
    lines = [["setting", "tasks", "mean", "worst", *budgets]]
    for label, by in found.items():
        cells, shares = [], []
        for task in budgets:
            if task not in by:
                cells.append("")
                continue
            returns, lasts = zip(*by[task], strict=True)
            shares.append(float(np.mean(returns) / np.mean([mean for mean, _ in base[task]])))
            cells.append(f"{shares[-1]:.2f} ({', '.join(f'{last:.0%}' for last in lasts)})")
        summary = [str(len(shares)), f"{np.mean(shares):.2f}", f"{min(shares):.2f}"]
        lines.append([label, *summary, *cells])
    return lines


def budget(table: Table, groups: Sequence[Group]) -> list[Line]:
    """Success at quarters of a budget, linear between evaluations, and the cost of 50 and 90 %.

    The option `axis` is "step" or "time/cpu_seconds". The budget of a task is the steps of its
    shortest run, or the time in which the fastest method made them.
    """
    axis = table.options["axis"]
    unit, words = (1e6, "M steps") if axis == "step" else (60.0, "min")
    quarters, levels = (0.25, 0.5, 0.75, 1.0), (0.5, 0.9)
    heads = [*(f"{x:.0%}" for x in quarters), *(f"to {level:.0%}" for level in levels)]
    lines: list[Line] = [["task", "method", "runs", "budget", *heads]]
    for task, of_task in by_task(groups).items():
        made = min(run.columns["step"][-1] for group in of_task for run in group.runs)
        end = made if axis == "step" else min(_mean_at(g, "step", made, axis) for g in of_task)
        for group in of_task:
            costs = [_with_start(run, axis) for run in group.runs]
            values = [_with_start(run, SUCCESS) for run in group.runs]
            cells = [f"{_mean_at(group, axis, x * end, SUCCESS):.0%}" for x in quarters]
            for level in levels:
                pairs = zip(costs, values, strict=True)
                hits = [float(cost[y >= level][0]) for cost, y in pairs if y.max() >= level]
                some = "" if len(hits) == len(costs) else f" ({len(hits)} of {len(costs)})"
                cells.append(f"{np.median(hits) / unit:.2f} {words}{some}" if hits else "never")
            size = f"{end / unit:.2f} {words}"
            lines.append([task, group.label, str(len(group.runs)), size, *cells])
    return lines


def _with_start(run: Run, column: str) -> Floats:
    return np.append(0.0, run.columns[column])


def _mean_at(group: Group, along: str, place: float, metric: str) -> float:
    """The mean of a metric over a group's runs where another column has a value."""
    pairs = [(_with_start(run, along), _with_start(run, metric)) for run in group.runs]
    return float(np.mean([np.interp(place, *pair) for pair in pairs]))


def verdict(groups: Sequence[Group]) -> str:
    """Return whether exploration is what makes a task hard, from its dense and sparse runs."""
    by = {group.label: group for group in groups}
    if not {"dense", "sparse"} <= by.keys():
        return "unknown: needs runs with dense and with sparse reward"
    dense, sparse = (final_mean(by[name], SUCCESS) or 0.0 for name in ("dense", "sparse"))
    if sparse >= SOLVED:
        return "no: sparse reward is enough"
    if dense < SOLVED:
        return "unknown: dense reward is not enough either"
    return (
        "yes: dense is learned, sparse is not"
        if sparse <= UNSOLVED
        else "partly: sparse is learned in part"
    )


def verdicts(table: Table, groups: Sequence[Group]) -> list[Line]:
    """One row per task with its verdict."""
    found = [[task, verdict(of_task)] for task, of_task in by_task(groups).items()]
    return [["task", "is exploration the problem?"], *found]


KINDS: dict[str, Callable[[Table, Sequence[Group]], list[Line]]] = {
    "pivot": pivot,
    "rows": rows,
    "improvement": improvement,
    "log_rank": log_rank_tests,
    "share": share,
    "budget": budget,
    "verdicts": verdicts,
}


def read(name: str, sources: Sequence[Mapping[str, Any]]) -> list[Group]:
    """Return the groups of some sources; by default of the file with the page's name."""
    return [
        group for source in sources or [{"name": name}] for group in curves.read_groups(**source)
    ]


def markdown(lines: Sequence[Line], names: Mapping[str, str]) -> str:
    """Return lines of cells as a table, tasks and methods by the names that readers know."""
    shown = [
        [names.get(cell, re.sub(r"^(gym|dmc)/(.*/)?", "", cell)) for cell in line] for line in lines
    ]
    first, *others = shown
    rule = ["---"] * len(first)
    return "".join(f"| {' | '.join(line)} |\n" for line in (first, rule, *others))


def draw(name: str, picture: Picture) -> None:
    """Write the figure of a page."""
    groups = read(name, picture.sources)
    with matplotlib.rc_context(STYLE):
        look = print_styles(list(dict.fromkeys(group.label for group in groups)))
        tasks = by_task(groups)
        panels = [
            (
                task.rpartition("/")[2] if len(tasks) > 1 else title(metric),
                partial(draw_curves, groups=some, metric=metric, look=look),
            )
            for task, some in tasks.items()
            for metric in picture.metrics
        ]
        figure = draw_panels(panels, look, note_on(groups), columns=picture.columns)
        save(figure, RESULTS / name, ("png",))


def page(name: str, spec: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the text of a page."""
    parts = [f"# {spec['title']}\n\n    python -m benchmarks.tables {name}\n", spec["text"]]
    if "figure" in spec:
        parts.append(f"![{spec['title']}]({name}.png)\n")
    for table in (Table(**one) for one in spec["tables"]):
        lines = KINDS[table.kind](table, read(name, table.sources))
        parts += [*([table.text] if table.text else []), markdown(lines, names)]
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    specs = tomllib.loads(PAGES.read_text())
    names = specs.pop("names")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(specs)}")
    pages = parser.parse_args().pages or list(specs)
    if unknown := [name for name in pages if name not in specs]:
        parser.error(f"{PAGES.name} has no page {unknown[0]}; its pages are {', '.join(specs)}.")
    for name in pages:
        spec = specs[name]
        (RESULTS / f"{name}.md").write_text(page(name, spec, names))
        if "figure" in spec:
            draw(name, Picture(**spec["figure"]))
        print(RESULTS / f"{name}.md")


if __name__ == "__main__":
    main()
