"""The paper's figures, made from run folders, as PDF, PNG and SVG.

    curves       one panel a task: the mean of each method's runs over steps, and its band
    ablation     beside each such panel the final scores, the methods in the plan's order
    bars         one panel a task: the final scores alone
    aggregate    over all tasks: interquartile mean, mean, area under the curve
    profiles     over all tasks: the share of runs above each score
    difficulty   of the plan of that name: the map of tasks and rewards

Bands and whiskers are 95 % intervals; where there is one run alone there are none. Final scores
are the mean of the last tenth of a run's steps; runs that did not reach their budget have none,
and where budgets differ the smallest counts for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mimex.envs.nearest import choose
from mimex.files import replacing
from mimex.study import panels
from mimex.study.difficulty import difficulty, difficulty_figure
from mimex.study.folder import StudyFolder
from mimex.study.panels import Look
from mimex.study.runs import Group, Run, find_runs, group_runs
from mimex.study.scores import TaskScores, comparable, final_scores, score_metric
from mimex.study.statistics import area_under_curve

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


def figures_of(
    source: Path | Sequence[Run], out: Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draws a study, or runs.

    Args:
        source: The folder of a study, whose plan says what to draw; or runs, whose methods are
            told by the settings in which they differ.
        out: Where the files go.
        formats: Some of "png", "pdf" and "svg".

    Returns:
        The files.
    """
    for name in formats:
        choose("formats", name, FORMATS)
    plan: Mapping[str, Any] = {}
    if isinstance(source, Path):
        study = StudyFolder(source).read()
        plan = study.get("plan", {})
        groups = group_runs(find_runs([source]), labels_of(study) or None)
    else:
        groups = group_runs(source)
    metric = plan.get("metric") or score_metric([run for g in groups for run in g.runs])
    with matplotlib.rc_context(STYLE):
        return [
            path
            for name, figure in _drawn(groups, metric, plan)
            for path in save(figure, out / name, formats)
        ]


def labels_of(study: Mapping[str, Any]) -> dict[str, str]:
    """What a study calls the method of each run, by the run's name."""
    return {run["name"]: ", ".join(run["labels"].values()) for run in study["runs"]}


def save(figure: Figure, path: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Writes a figure in some formats, each whole or not at all."""
    paths = [path.with_name(f"{path.name}.{name}") for name in formats]
    for target in paths:
        # Without the time, the same runs give the same file.
        stamp = {".svg": "Date", ".pdf": "CreationDate"}.get(target.suffix)
        with replacing(target) as aside:
            figure.savefig(aside, dpi=DPI, metadata={stamp: None} if stamp else None)
    return paths


def _drawn(
    groups: Sequence[Group], metric: str, plan: Mapping[str, Any]
) -> Iterator[tuple[str, Figure]]:
    kind = plan.get("figure", "curves")
    look = Look(list(dict.fromkeys(group.label for group in groups)))
    scores = final_scores(groups, metric)
    note = _note(groups)
    yield "curves", curves_figure(groups, metric, look, note)
    if plan.get("name") == "difficulty":
        cells = difficulty([run for group in groups for run in group.runs])
        yield "difficulty", difficulty_figure(cells)
    if kind != "curves" and scores:
        yield kind, scores_figure(groups, metric, look, note, with_curves=kind == "ablation")
    compared = comparable(scores) if scores else {}
    if compared:
        areas = comparable(final_scores(groups, metric, area_under_curve))
        yield "aggregate", aggregate_figure(compared, areas, metric, look, note)
        yield "profiles", profiles_figure(compared, metric, look, note)


def curves_figure(groups: Sequence[Group], metric: str, look: Look, note: str = "") -> Figure:
    """One panel a task: the mean of each method's runs over steps, and its band."""
    tasks = list(dict.fromkeys(group.task for group in groups))
    columns = min(len(tasks), PANELS_A_ROW)
    figure, panel = _grid(-(-len(tasks) // columns), columns)
    for place, task in enumerate(tasks):
        axes = panel(place)
        panels.draw_curves(axes, [group for group in groups if group.task == task], metric, look)
        axes.set_title(task)
    _finish(figure, look, note)
    return figure


def metrics_figure(groups: Sequence[Group], metrics: Sequence[str]) -> Figure:
    """One row a task, one panel a metric; metrics that no run of a task reported are left out."""
    look = Look(list(dict.fromkeys(group.label for group in groups)))
    by_task = {
        task: [group for group in groups if group.task == task]
        for task in dict.fromkeys(group.task for group in groups)
    }
    told = {
        task: [name for name in metrics if _reported(chosen, name)]
        for task, chosen in by_task.items()
    }
    columns = max(len(names) for names in told.values())
    figure, panel = _grid(len(by_task), columns)
    for row, (task, chosen) in enumerate(by_task.items()):
        for column, metric in enumerate(told[task]):
            axes = panel(row * columns + column)
            panels.draw_curves(axes, chosen, metric, look)
            axes.set_title(task)
    _finish(figure, look, _note(groups))
    return figure


def _reported(groups: Sequence[Group], metric: str) -> bool:
    return any(len(run.curve(metric)[0]) for group in groups for run in group.runs)


def scores_figure(
    groups: Sequence[Group], metric: str, look: Look, note: str = "", *, with_curves: bool
) -> Figure:
    """One panel a task with the final scores, and before it one with the curves, if asked for."""
    tasks = list(dict.fromkeys(group.task for group in groups))
    each = 2 if with_curves else 1
    columns = min(each * len(tasks), PANELS_A_ROW)
    figure, panel = _grid(-(-each * len(tasks) // columns), columns)
    for place, task in enumerate(tasks):
        chosen = [group for group in groups if group.task == task]
        if with_curves:
            axes = panel(2 * place)
            panels.draw_curves(axes, chosen, metric, look)
            axes.set_title(task)
        scores = {label: by_task[task] for label, by_task in final_scores(chosen, metric).items()}
        axes = panel(each * place + each - 1)
        panels.draw_scores(axes, scores, metric, look)
        axes.set_title(task)
    _finish(figure, look, note, legend=with_curves)
    return figure


def aggregate_figure(
    scores: Mapping[str, TaskScores],
    areas: Mapping[str, TaskScores],
    metric: str,
    look: Look,
    note: str,
) -> Figure:
    """Bars over all tasks: interquartile mean and mean of the final scores, area under curves."""
    figure, panel = _grid(1, 3)
    panels.draw_aggregate(panel(0), scores, "iqm", metric, look)
    panels.draw_aggregate(panel(1), scores, "mean", metric, look)
    panels.draw_aggregate(panel(2), areas, "mean", metric, look)
    for place, name in enumerate(("interquartile mean", "mean", "mean over the run (area)")):
        panel(place).set_title(name)
    panel(0).set_ylabel(f"final {panels.title(metric)}")
    panel(2).set_ylabel(panels.title(metric))
    _finish(figure, look, f"{_tasks_note(scores)}{note}", legend=False)
    return figure


def profiles_figure(scores: Mapping[str, TaskScores], metric: str, look: Look, note: str) -> Figure:
    """The share of runs above each score, over all tasks."""
    figure, panel = _grid(1, 1, scale=1.5)
    panels.draw_profiles(panel(0), scores, metric, look)
    _finish(figure, look, f"{_tasks_note(scores)}{note}")
    return figure


def _grid(rows: int, columns: int, scale: float = 1.0) -> tuple[Figure, Callable[[int], Axes]]:
    """A figure, and a function that makes or gives its panels one after the other."""
    size = (scale * WIDTH * columns, scale * HEIGHT * rows + 0.5)  # inches, with the legend
    figure = Figure(figsize=size, layout="constrained")
    made: dict[int, Axes] = {}

    def panel(place: int) -> Axes:
        if place not in made:
            made[place] = figure.add_subplot(rows, columns, place + 1)
        return made[place]

    return figure, panel


def _finish(figure: Figure, look: Look, note: str, *, legend: bool = True) -> None:
    handles = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    named = [(handles[label], label) for label in look.labels if label in handles]
    if legend and named:
        longest = 0.7 + 0.07 * max(len(label) for label in look.labels)  # inches a name takes
        columns = max(1, int(figure.get_figwidth() / longest))
        figure.legend(*zip(*named, strict=True), loc="outside upper center", ncols=columns)
    if note:
        figure.supxlabel(note, fontsize=6, color="0.35")


def _note(groups: Sequence[Group]) -> str:
    """What bands are, how many runs there are, and which are left out."""
    seeds = sorted({len(group.runs) for group in groups})
    span = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    words = [f"{span} seed{'s' * (seeds != [1])} each"]
    if seeds[-1] > 1:
        words.append("95 % intervals")
    unfinished = sum(not run.finished for group in groups for run in group.runs)
    if unfinished:
        words.append(f"{unfinished} unfinished run{'s' * (unfinished > 1)} in curves only")
    return "; ".join(words)


def _tasks_note(scores: Mapping[str, TaskScores]) -> str:
    tasks = len(next(iter(scores.values())))
    return f"{tasks} task{'s' * (tasks > 1)}; "
