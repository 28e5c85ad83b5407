"""The paper's figures, made from run folders, as PDF, PNG and SVG.

    curves       one panel a task: the mean of each method's runs over steps, and its band
    ablation     beside each such panel the final scores, the methods in the plan's order
    bars         one panel a task: the final scores alone
    difficulty   the bars, and a map of tasks and methods
    aggregate    over all tasks: interquartile mean, mean, area under the curve
    profiles     over all tasks: the share of runs above each score
    waits        one panel a task: the share of runs that have met no reward yet, over steps

Bands and whiskers are 95 % intervals; where there is one run alone there are none. Final scores
are the mean of the last tenth of a run's steps; runs that did not reach their budget have none,
and where budgets differ the smallest counts for all. Waits are of all runs, as far as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mimex.envs.nearest import choose
from mimex.files import replacing
from mimex.study.difficulty import difficulty_figure
from mimex.study.folder import StudyFolder, group_as_planned
from mimex.study.groups import Group, TaskScores, comparable, final_scores, seed_count
from mimex.study.panels import (
    Styles,
    draw_curves,
    draw_profiles,
    draw_scores,
    draw_survival,
    print_styles,
    title,
)
from mimex.study.runs import find_runs
from mimex.study.statistics import area_under_curve
from mimex.study.survival import waits_of

FORMATS = ("png", "pdf", "svg")

WIDTH, HEIGHT = 2.6, 2.1  # of a panel (inches): two fit a column, four a page
PANELS_A_ROW = 4

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
"""A title, and what draws the panel."""


def figures_of(study: Path, out: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draws a study as its plan says.

    Args:
        study: The study's folder.
        out: Where the files go.
        formats: Some of "png", "pdf" and "svg".

    Returns:
        The files.
    """
    for name in formats:
        choose("formats", name, FORMATS)
    kind = StudyFolder(study).read().get("plan", {}).get("figure", "curves")
    groups, metric = group_as_planned(find_runs([study]))
    with matplotlib.rc_context(STYLE):
        return [
            path
            for name, figure in _figures(groups, metric, kind)
            for path in save(figure, out / name, formats)
        ]


def save(figure: Figure, path: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Writes a figure in some formats, each whole or not at all."""
    paths = [path.with_name(f"{path.name}.{name}") for name in formats]
    for target in paths:
        # Without the time, the same runs give the same file.
        stamp = {".svg": "Date", ".pdf": "CreationDate"}.get(target.suffix)
        with replacing(target) as aside:
            figure.savefig(aside, dpi=DPI, metadata={stamp: None} if stamp else None)
    return paths


def _figures(groups: Sequence[Group], metric: str, kind: str) -> Iterator[tuple[str, Figure]]:
    look = print_styles(list(dict.fromkeys(group.label for group in groups)))
    scores = final_scores(groups, metric)
    yield "curves", curves_figure(groups, metric, look)
    if kind == "difficulty":
        yield "difficulty", difficulty_figure(groups)
    if kind != "curves" and scores:
        name = "bars" if kind == "difficulty" else kind
        yield name, scores_figure(groups, metric, look, with_curves=kind == "ablation")
    compared = comparable(scores)
    if compared:
        count = len(next(iter(compared.values())))
        note = f"{count} task{'s' * (count > 1)}; {note_on(groups)}"
        areas = comparable(final_scores(groups, metric, area_under_curve))
        yield "aggregate", aggregate_figure(compared, areas, metric, look, note)
        panel = ("", partial(draw_profiles, scores=compared, metric=metric, look=look))
        yield "profiles", draw_panels([panel], look, note, scale=1.5)
    if any(waits_of(group.runs).met.any() for group in groups):
        yield "waits", waits_figure(groups, look)


def curves_figure(groups: Sequence[Group], metric: str, look: Styles) -> Figure:
    """One panel a task: the mean of each method's runs over steps, and its band."""
    panels = [
        (task, partial(draw_curves, groups=of_task, metric=metric, look=look))
        for task, of_task in by_task(groups).items()
    ]
    return draw_panels(panels, look, note_on(groups))


def scores_figure(
    groups: Sequence[Group], metric: str, look: Styles, *, with_curves: bool
) -> Figure:
    """One panel a task with the final scores, and before it one with the curves, if asked for."""
    panels: list[Panel | None] = []
    for task, of_task in by_task(groups).items():
        if with_curves:
            panels.append((task, partial(draw_curves, groups=of_task, metric=metric, look=look)))
        scores = final_scores(of_task, metric)
        panels.append((task, partial(draw_scores, scores=scores, metric=metric, look=look)))
    return draw_panels(panels, look, note_on(groups), legend=with_curves)


def aggregate_figure(
    scores: Mapping[str, TaskScores],
    areas: Mapping[str, TaskScores],
    metric: str,
    look: Styles,
    note: str,
) -> Figure:
    """Bars over all tasks: interquartile mean and mean of the final scores, area under curves."""
    shown: dict[str, Any] = {"metric": metric, "look": look}
    panels = [
        ("interquartile mean", partial(draw_scores, scores=scores, statistic="iqm", **shown)),
        ("mean", partial(draw_scores, scores=scores, **shown)),
        (
            "mean over the run (area)",
            partial(draw_scores, scores=areas, height=title(metric), **shown),
        ),
    ]
    return draw_panels(panels, look, note, legend=False)


def waits_figure(groups: Sequence[Group], look: Styles) -> Figure:
    """One panel a task: the share of each method's runs that have met no reward yet."""
    panels = [
        (task, partial(draw_survival, groups=of_task, look=look))
        for task, of_task in by_task(groups).items()
    ]
    note = f"{seed_count(groups)} each; runs that met no reward count up to their last step"
    return draw_panels(panels, look, note)


def draw_panels(
    panels: Sequence[Panel | None],
    look: Styles,
    note: str,
    *,
    columns: int = PANELS_A_ROW,
    scale: float = 1.0,
    legend: bool = True,
) -> Figure:
    """A figure of panels, row by row, with the methods above and a note below.

    Args:
        panels: What to draw; None leaves a place empty.
        look: How each method is drawn.
        note: What the reader has to know.
        columns: Panels a row at most.
        scale: Of the panels' size.
        legend: Whether to name the methods.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    size = (scale * WIDTH * columns, scale * HEIGHT * rows + 0.5)  # inches, with the legend
    figure = Figure(figsize=size, layout="constrained")
    for place, panel in enumerate(panels, start=1):
        if panel is not None:
            name, draw = panel
            axes = figure.add_subplot(rows, columns, place)
            draw(axes)
            axes.set_title(name)
    handles = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    named = [(handles[label], label) for label in look if label in handles]
    if legend and named:
        longest = 0.7 + 0.07 * max(len(label) for label in look)  # inches a name takes
        a_row = max(1, int(figure.get_figwidth() / longest))
        figure.legend(*zip(*named, strict=True), loc="outside upper center", ncols=a_row)
    if note:
        figure.supxlabel(note, fontsize=6, color="0.35")
    return figure


def by_task(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each task, in the order of the tasks."""
    tasks: dict[str, list[Group]] = {}
    for group in groups:
        tasks.setdefault(group.task, []).append(group)
    return tasks


def note_on(groups: Sequence[Group]) -> str:
    """What bands are, how many runs there are, and which are left out."""
    words = [f"{seed_count(groups)} each"]
    if any(len(group.runs) > 1 for group in groups):
        words.append("95 % intervals")
    unfinished = sum(not run.finished for group in groups for run in group.runs)
    if unfinished:
        words.append(f"{unfinished} unfinished run{'s' * (unfinished > 1)} in curves only")
    return "; ".join(words)
