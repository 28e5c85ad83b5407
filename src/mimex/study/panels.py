"""Panels of figures (curves, scores, steps to the first reward) and the style of each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, product

import numpy as np
from matplotlib.axes import Axes

from mimex.bonus import BONUSES
from mimex.config import family_of
from mimex.study.groups import Group, TaskScores, bounds, common_grid, curves
from mimex.study.runs import Numbers
from mimex.study.statistics import (
    Statistic,
    curve_band,
    interval,
    iqm,
    mean,
)
from mimex.study.survival import survival_curve, waits_of

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


@dataclass(frozen=True)
class Style:
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
        label: replace(style, dashes=DASHES[index % len(DASHES)])
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
            found = curve_band({group.task: values}, "mean")
            band = np.clip([found.low, found.high], *bounds(metric))
        _draw_line(axes, grid / unit, values.mean(0), band, group.label, look)
    axes.set(xlabel=counted, ylabel=title(metric))
    _limit(axes, metric)


def draw_survival(axes: Axes, groups: Sequence[Group], look: Styles) -> None:
    """Draws the Kaplan-Meier curve of each method: the fraction of runs without a reward."""
    curves = {group.label: survival_curve(waits_of(group.runs)) for group in groups}
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

    Args:
        axes: Axes of the panel.
        scores: Scores by method, then by task.
        metric: The metric of the scores.
        look: Style of each method.
        statistic: The bar's height, "mean" or "iqm".
        ylabel: Label of the y axis; the final value of the metric by default.
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
            found = interval(by_task, statistic)
            low, high = np.clip([found.low, found.high], *bounds(metric))
            lengths = [[max(found.value - low, 0.0)], [max(high - found.value, 0.0)]]
            axes.errorbar(index, found.value, lengths, color="black", capsize=3, linewidth=1)
    axes.set_xticks(range(len(scores)), list(scores), rotation=30, ha="right")
    axes.set_ylabel(ylabel or f"final {title(metric)}")
    _limit(axes, metric)


def _unit(groups: Sequence[Group], most: float) -> tuple[float, str]:
    """Returns the unit of the x axis, and its label."""
    units = {family_of(group.task).unit for group in groups}
    counted = units.pop() if len(units) == 1 else "steps"
    return (1e6, f"million {counted}") if most >= 1e6 else (1e3, f"thousand {counted}")


def _draw_line(
    axes: Axes, x: Numbers, y: Numbers, band: Numbers | None, label: str, look: Styles
) -> None:
    """Draws a method's line, and its band from low to high ``(2, points)`` if given."""
    style = look[label]
    axes.plot(x, y, color=style.color, dashes=style.dashes or (None, None), label=label)
    if band is not None:
        axes.fill_between(x, *band, color=style.color, alpha=BAND_ALPHA, lw=0)


def _limit(axes: Axes, metric: str) -> None:
    """Sets the same limits in all panels of success rates."""
    if metric.endswith("/success"):
        axes.set_ylim(-0.03, 1.03)
