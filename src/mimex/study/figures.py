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

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mimex.envs.nearest import choose
from mimex.files import replacing
from mimex.study.folder import group_as_planned
from mimex.study.groups import Group, comparable, final_scores, seed_count
from mimex.study.panels import (
    Styles,
    draw_curves,
    draw_scores,
    draw_survival,
    print_styles,
    title,
)
from mimex.study.runs import find_runs
from mimex.study.statistics import area_under_curve
from mimex.study.survival import waits_of

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

Panel = tuple[str, Callable[[Axes], None]]
"""A title, and the function that draws the panel."""


def figures_of(study: Path, out: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draws the figures of a study.

    Args:
        study: The study folder.
        out: Folder of the figures.
        formats: Some of "png", "pdf" and "svg".

    Returns:
        The files.
    """
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
    note = note_on(groups)
    yield "curves", draw_panels(_by_task(draw_curves, groups, metric=metric, look=look), look, note)
    scores = final_scores(groups, metric)
    if scores:
        panels = [
            (task, partial(draw_scores, scores=found, metric=metric, look=look))
            for task, of_task in by_task(groups).items()
            if (found := final_scores(of_task, metric))
        ]
        yield "scores", draw_panels(panels, look, note, legend=False)
    shared = comparable(scores)
    if shared:
        count = len(next(iter(shared.values())))
        areas = comparable(final_scores(groups, metric, area_under_curve))
        draw = partial(draw_scores, metric=metric, look=look)
        panels = [
            ("interquartile mean", partial(draw, scores=shared, statistic="iqm")),
            ("mean", partial(draw, scores=shared)),
            ("area under the curve", partial(draw, scores=areas, ylabel=title(metric))),
        ]
        tasks = f"{count} task{'s' * (count > 1)}; {note}"
        yield "aggregate", draw_panels(panels, look, tasks, legend=False)
    if any(waits_of(group.runs).met.any() for group in groups):
        note = f"{seed_count(groups)} each; runs without a reward are censored at their last step"
        yield "first_reward", draw_panels(_by_task(draw_survival, groups, look=look), look, note)


def _by_task(draw: Callable[..., None], groups: Sequence[Group], **options: Any) -> list[Panel]:
    return [
        (task, partial(draw, groups=of_task, **options))
        for task, of_task in by_task(groups).items()
    ]


def draw_panels(
    panels: Sequence[Panel],
    look: Styles,
    note: str,
    *,
    columns: int = COLUMNS,
    legend: bool = True,
) -> Figure:
    """Draws a figure of panels, row by row, with a legend above and a note below.

    Args:
        panels: Titles and functions that draw the panels.
        look: Style of each method.
        note: Text below the figure.
        columns: Maximum number of panels per row.
        legend: Whether to draw a legend.
    """
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
