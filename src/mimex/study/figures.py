"""Figures of a study, as PDF, PNG and SVG.

    curves         one panel per task: the mean of each method's runs over steps
    scores         one panel per task: the final scores of each method, in the plan's order
    aggregate      over all tasks: interquartile mean, mean, area under the curve
    first_reward   one panel per task: the fraction of runs without a reward, over steps

Bands and error bars are 95 % intervals, drawn for two or more runs. A final score is the mean over
the last tenth of the steps of a finished run; if budgets differ, all runs of a task are cut at the
smallest. The first reward is shown for all runs, also for unfinished ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mimex.bonus import BONUSES
from mimex.config import family_of
from mimex.envs.nearest import choose
from mimex.files import replacing
from mimex.study.folder import group_as_planned
from mimex.study.groups import (
    Group,
    TaskScores,
    bounds,
    common_grid,
    comparable,
    curves,
    final_scores,
    seed_count,
)
from mimex.study.runs import Floats, find_runs
from mimex.study.statistics import (
    Statistic,
    area_under_curve,
    curve_band,
    interval,
    iqm,
    mean,
)
from mimex.study.survival import durations_of, survival_curve

FORMATS = ("png", "pdf", "svg")

WIDTH, HEIGHT = 2.6, 2.1  # inches per panel: two fit a column, four a page
COLUMNS = 4

STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "mimex",  # the same runs give the same file
}
DPI = 200

BASELINES = ("#7b858f", "#a6761d")
"""Gray and brown for the baselines, no bonus and a constant one: legible on white and on black."""

OKABE_ITO = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""A color-blind safe palette (Okabe and Ito, 2008), without black and yellow, which have too little
contrast on a dark or a light page."""

ORACLE = "#882255"
"""Wine (Tol, 2021), for the oracle baseline, which counts the task's own cells."""

DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3))
"""Lengths of dashes and gaps in points; each is combined with all colors."""

BAND_ALPHA = 0.18
"""Lines stay visible under four overlapping bands."""

TITLES = {
    "eval/success": "success rate",
    "eval/return": "return",
    "train/success": "training success rate",
    "train/return": "training return",
    "explore/coverage": "coverage of the grid",
    "bonus/share": "bonus share of reward",
    "bonus/probe": "bonus on a fixed batch",
    "train/episode_steps": "episode length",
    "train/reached_open": "episodes with an opened drawer",
    "train/reached_lift": "episodes with a lifted cube",
    "train/reached_touch": "episodes with a moved cube",
    "train/reached_handle": "episodes with a grasped handle",
}


Panel = tuple[str, Callable[[Axes], None]]
"""A title, and the function that draws the panel."""


def figures_of(study: Path, out: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draws the figures of a study to a folder; returns the files."""
    for name in formats:
        choose("formats", name, FORMATS)
    groups, metric = group_as_planned(find_runs([study]))
    with matplotlib.rc_context(STYLE):
        return [
            path
            for name, figure in draw_figures(groups, metric)
            for path in save(figure, out / name, formats)
        ]


def save(figure: Figure, path: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Writes a figure in some formats, each file atomically."""
    paths = [path.with_name(f"{path.name}.{name}") for name in formats]
    for target in paths:
        # Without the date, the same runs give the same file.
        stamp = {".svg": "Date", ".pdf": "CreationDate"}.get(target.suffix)
        with replacing(target) as aside:
            figure.savefig(aside, dpi=DPI, metadata={stamp: None} if stamp else None)
    return paths


def draw_figures(groups: Sequence[Group], metric: str) -> Iterator[tuple[str, Figure]]:
    """Draws all figures of a study, by name."""
    look = print_styles(list(dict.fromkeys(group.label for group in groups)))
    note, tasks = note_on(groups), by_task(groups)
    draw = partial(draw_scores, metric=metric, look=look)
    panels: list[Panel] = [
        (task, partial(draw_curves, groups=of_task, metric=metric, look=look))
        for task, of_task in tasks.items()
    ]
    yield "curves", draw_panels(panels, look, note)
    scores = final_scores(groups, metric)
    if scores:
        found = {task: final_scores(of_task, metric) for task, of_task in tasks.items()}
        panels = [(task, partial(draw, scores=its)) for task, its in found.items() if its]
        yield "scores", draw_panels(panels, look, note, legend=False)
    shared = comparable(scores)
    if shared:
        count = len(next(iter(shared.values())))
        areas = comparable(final_scores(groups, metric, area_under_curve))
        panels = [
            ("interquartile mean", partial(draw, scores=shared, statistic="iqm")),
            ("mean", partial(draw, scores=shared)),
            ("area under the curve", partial(draw, scores=areas, ylabel=title(metric))),
        ]
        counted = f"{count} task{'s' * (count > 1)}; {note}"
        yield "aggregate", draw_panels(panels, look, counted, legend=False)
    if any(durations_of(group.runs).observed.any() for group in groups):
        note = f"{seed_count(groups)} each; runs without a reward are censored at their last step"
        panels = [
            (task, partial(draw_survival, groups=its, look=look)) for task, its in tasks.items()
        ]
        yield "first_reward", draw_panels(panels, look, note)


def draw_panels(
    panels: Sequence[Panel],
    look: Styles,
    note: str,
    *,
    columns: int = COLUMNS,
    legend: bool = True,
) -> Figure:
    """Draws a figure of panels, row by row, with a legend above and a note below."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows + 0.5), layout="constrained")
    for index, (name, draw) in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, index)
        draw(axes)
        axes.set_title(name)
    handles = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    named = [(handles[label], label) for label in look if label in handles]
    if legend and named:
        longest = 0.7 + 0.07 * max(len(label) for label in look)  # inches per entry
        per_row = max(1, int(figure.get_figwidth() / longest))
        figure.legend(*zip(*named, strict=True), loc="outside upper center", ncols=per_row)
    if note:
        figure.supxlabel(note, fontsize=6, color="0.35")
    return figure


def by_task(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Returns the groups of each task, in the order of tasks."""
    tasks: dict[str, list[Group]] = {}
    for group in groups:
        tasks.setdefault(group.task, []).append(group)
    return tasks


def note_on(groups: Sequence[Group]) -> str:
    """Returns the note of a figure: seeds, kind of interval, unfinished runs."""
    words = [f"{seed_count(groups)} each"]
    if any(len(group.runs) > 1 for group in groups):
        words.append("95 % intervals")
    unfinished = sum(not run.finished for group in groups for run in group.runs)
    if unfinished:
        words.append(f"{unfinished} unfinished run{'s' * (unfinished > 1)} in curves only")
    return "; ".join(words)


class Style(NamedTuple):
    """Color and dashes of a method."""

    color: str
    dashes: tuple[int, ...]


Styles = Mapping[str, Style]
"""Styles by method, the same in every panel."""


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """Returns a style for each method, distinct as long as there are enough.

    A method that is named like a bonus has the color of that bonus in all studies.
    """
    chosen = {}
    for (dashes, color), bonus in zip(
        product(DASHES, (*BASELINES, *OKABE_ITO, ORACLE)), BONUSES, strict=False
    ):
        if bonus in labels:
            chosen[bonus] = Style(color, dashes)
    taken = {style.color for style in chosen.values()}
    free = (
        Style(color, dashes)
        for dashes, color in cycle(product(DASHES, OKABE_ITO))
        if dashes or color not in taken
    )
    return {label: chosen[label] if label in chosen else next(free) for label in labels}


def print_styles(labels: Sequence[str]) -> dict[str, Style]:
    """Returns the same colors with different dashes, for print without color."""
    return {
        label: style._replace(dashes=DASHES[index % len(DASHES)])
        for index, (label, style) in enumerate(styles(labels).items())
    }


def title(metric: str) -> str:
    """Returns the axis label of a metric."""
    return TITLES.get(metric, metric)


def draw_curves(axes: Axes, groups: Sequence[Group], metric: str, look: Styles) -> None:
    """Draws the mean of each method's runs over steps, with a band for two or more runs."""
    steps = [run.curve(metric)[0] for group in groups for run in group.runs]
    unit, counted = _unit(groups, max((x[-1] for x in steps if len(x)), default=0.0))
    for group in groups:
        grid = common_grid(group.runs, metric)
        if not len(grid):
            continue
        values = curves(group, metric, grid)  # (runs, steps)
        band = None
        if len(values) > 1:
            found = curve_band({group.task: values}, "mean", limits=bounds(metric))
            band = found.low, found.high
        _draw_line(axes, grid / unit, values.mean(0), band, group.label, look)
    axes.set(xlabel=counted, ylabel=title(metric))
    _limit(axes, metric)


def draw_survival(axes: Axes, groups: Sequence[Group], look: Styles) -> None:
    """Draws the Kaplan-Meier curve of each method: the fraction of runs without a reward."""
    curves = {group.label: survival_curve(durations_of(group.runs)) for group in groups}
    unit, counted = _unit(groups, max(steps[-1] for steps, _ in curves.values()))
    for label, (steps, shares) in curves.items():
        _draw_line(axes, steps / unit, shares, None, label, look)
    for line in axes.get_lines():
        line.set_drawstyle("steps-post")
    axes.set(xlabel=counted, ylabel="runs without a reward", ylim=(-0.03, 1.03))


def draw_scores(
    axes: Axes,
    scores: Mapping[str, TaskScores],
    metric: str,
    look: Styles,
    statistic: Statistic = "mean",
    ylabel: str | None = None,
) -> None:
    """Draws a bar with an interval for each method, and a dot per run if there is one task.

    Scores are given by method, then by task.
    """
    for index, (label, by_task) in enumerate(scores.items()):
        value = {"iqm": iqm, "mean": mean}[statistic](by_task)
        # Outlined, for print without color.
        shape = {"width": 0.7, "alpha": 0.6, "edgecolor": "black", "linewidth": 0.6}
        axes.bar(index, value, color=look[label].color, **shape)  # type: ignore[arg-type]
        if len(by_task) == 1:
            dots = np.sort(next(iter(by_task.values())))
            spread = np.linspace(-0.2, 0.2, len(dots)) if len(dots) > 1 else np.zeros(1)
            axes.plot(index + spread, dots, ".", color="black", markersize=3)
        if all(len(values) > 1 for values in by_task.values()):
            _, low, high = interval(by_task, statistic, limits=bounds(metric))
            lengths = [[max(value - low, 0.0)], [max(high - value, 0.0)]]
            axes.errorbar(index, value, lengths, color="black", capsize=3, linewidth=1)
    axes.set_xticks(range(len(scores)), list(scores), rotation=30, ha="right")
    axes.set_ylabel(ylabel or f"final {title(metric)}")
    _limit(axes, metric)


def _unit(groups: Sequence[Group], most: float) -> tuple[float, str]:
    """Returns the unit of the x axis, and its label."""
    units = {family_of(group.task).unit for group in groups}
    counted = units.pop() if len(units) == 1 else "steps"
    return (1e6, f"million {counted}") if most >= 1e6 else (1e3, f"thousand {counted}")


def _draw_line(
    axes: Axes, x: Floats, y: Floats, band: tuple[Floats, Floats] | None, label: str, look: Styles
) -> None:
    """Draws a method's line, and its band from low to high if given."""
    style = look[label]
    axes.plot(x, y, color=style.color, dashes=style.dashes or (None, None), label=label)
    if band is not None:
        axes.fill_between(x, *band, color=style.color, alpha=BAND_ALPHA, lw=0)


def _limit(axes: Axes, metric: str) -> None:
    """Sets the same limits in all panels of success rates."""
    if metric.endswith("/success"):
        axes.set_ylim(-0.03, 1.03)
