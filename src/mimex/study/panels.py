"""What a figure's panels show: curves, scores, profiles, waits; each method in its colors."""

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
    performance_profile,
)
from mimex.study.survival import survival_curve, waits_of

BASELINES = ("#7b858f", "#a6761d")
"""Grey and brown for what everything else is compared with, no bonus and a constant one: readable
on white and on black."""

OKABE_ITO = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colors that the color-blind can tell apart (Okabe and Ito, 2008), without black and yellow,
which a dark and a light page would swallow."""

CEILING = "#882255"
"""Wine (Tol, 2021), for counts, which the others may at best come near to."""

DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3))
"""On, off, on, off, ... in points; the colors are used with each in turn."""

BAND_ALPHA = 0.18
"""Of bands: four of them over each other still show the lines."""

TITLES = {
    "eval/success": "success rate",
    "eval/return": "return",
    "train/success": "success rate in training",
    "train/return": "return in training",
    "explore/coverage": "share of the grid visited",
    "bonus/share": "bonus's share of reward",
    "bonus/probe": "bonus on a fixed batch",
    "train/episode_steps": "steps of an episode",
    "train/reached_open": "episodes that open it",
    "train/reached_lift": "episodes that lift it",
    "train/reached_touch": "episodes that move it",
    "train/reached_handle": "episodes that hold the handle",
}


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    color: str
    dashes: tuple[int, ...]


Styles = Mapping[str, Style]
"""By method, the same in every panel."""


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """A style for each method, all different as long as there are enough.

    A method that has a bonus's name has the color of this bonus, so that it looks the same in all
    studies; the first two of the bonuses are what the others are compared with.
    """
    chosen = {}
    for (dashes, color), bonus in zip(
        product(DASHES, (*BASELINES, *OKABE_ITO, CEILING)), BONUSES, strict=False
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
    """The same colors, and dashes that tell methods apart in print without them."""
    return {
        label: replace(style, dashes=DASHES[place % len(DASHES)])
        for place, (label, style) in enumerate(styles(labels).items())
    }


def title(metric: str) -> str:
    """A metric in words."""
    return TITLES.get(metric, metric)


def draw_curves(axes: Axes, groups: Sequence[Group], metric: str, look: Styles) -> None:
    """The mean of each method's runs over steps, with its band where there are two or more."""
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
    """For each method the share of runs that have met no reward yet, over steps."""
    curves = {group.label: survival_curve(waits_of(group.runs)) for group in groups}
    unit, counted = _unit(groups, max(steps[-1] for steps, _ in curves.values()))
    for label, (steps, shares) in curves.items():
        _draw_line(axes, steps / unit, shares, None, label, look)
    for line in axes.get_lines():
        line.set_drawstyle("steps-post")
    axes.set(xlabel=counted, ylabel="runs without a reward yet", ylim=(-0.03, 1.03))


def draw_scores(
    axes: Axes,
    scores: Mapping[str, TaskScores],
    metric: str,
    look: Styles,
    statistic: Statistic = "mean",
    height: str | None = None,
) -> None:
    """A bar with its interval for each method, and of a single task a dot for every run.

    Args:
        axes: Where to draw.
        scores: By method, then by task.
        metric: Of which the scores are.
        look: How each method is drawn.
        statistic: What of the scores is the bar's height.
        height: The same in words; by default it is the final value of the metric.
    """
    for place, (label, by_task) in enumerate(scores.items()):
        value = {"iqm": iqm, "mean": mean}[statistic](by_task)
        # Outlined, so that print without color shows it.
        shape = {"width": 0.7, "alpha": 0.6, "edgecolor": "black", "linewidth": 0.6}
        axes.bar(place, value, color=look[label].color, **shape)  # type: ignore[arg-type]
        if len(by_task) == 1:
            dots = np.sort(next(iter(by_task.values())))
            spread = np.linspace(-0.2, 0.2, len(dots)) if len(dots) > 1 else np.zeros(1)
            axes.plot(place + spread, dots, ".", color="black", markersize=3)
        if all(len(values) > 1 for values in by_task.values()):
            found = interval(by_task, statistic)
            low, high = np.clip([found.low, found.high], *bounds(metric))
            lengths = [[max(found.value - low, 0.0)], [max(high - found.value, 0.0)]]
            axes.errorbar(place, found.value, lengths, color="black", capsize=3, linewidth=1)
    axes.set_xticks(range(len(scores)), list(scores), rotation=30, ha="right")
    axes.set_ylabel(height or f"final {title(metric)}")
    _limit(axes, metric)


def draw_profiles(axes: Axes, scores: Mapping[str, TaskScores], metric: str, look: Styles) -> None:
    """For each method the share of runs above every score."""
    low, high = bounds(metric)
    if not np.isfinite(high):
        everything = np.concatenate([x for by_task in scores.values() for x in by_task.values()])
        low, high = min(0.0, everything.min()), everything.max()
    levels = np.linspace(low, high, 101)
    for label, by_task in scores.items():
        above = [mean({task: x > level for task, x in by_task.items()}) for level in levels]
        band = None
        if all(len(values) > 1 for values in by_task.values()):
            found = performance_profile(by_task, levels)
            band = np.array([found.low, found.high])
        _draw_line(axes, levels, np.array(above), band, label, look)
    axes.set(xlabel=f"final {title(metric)}", ylabel="share of runs above", ylim=(-0.03, 1.03))


def _unit(groups: Sequence[Group], most: float) -> tuple[float, str]:
    """What steps up to some number are counted in, and the same in words."""
    units = {family_of(group.task).unit for group in groups}
    counted = units.pop() if len(units) == 1 else "steps"
    return (1e6, f"million {counted}") if most >= 1e6 else (1e3, f"thousand {counted}")


def _draw_line(
    axes: Axes, x: Numbers, y: Numbers, band: Numbers | None, label: str, look: Styles
) -> None:
    """A method's line, and its band from low to high ``(2, points)`` if it has one."""
    style = look[label]
    axes.plot(x, y, color=style.color, dashes=style.dashes or (None, None), label=label)
    if band is not None:
        axes.fill_between(x, *band, color=style.color, alpha=BAND_ALPHA, lw=0)


def _limit(axes: Axes, metric: str) -> None:
    """Shows success rates from none to all, so that panels can be compared at a glance."""
    if metric.endswith("/success"):
        axes.set_ylim(-0.03, 1.03)
