"""What a figure's panels show: curves with bands, scores, aggregates, profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from mimex.config import of_suite
from mimex.study.colours import DASHES, styles
from mimex.study.runs import Group, common_grid, curves
from mimex.study.scores import TaskScores, bounds
from mimex.study.statistics import (
    Estimate,
    Statistic,
    curve_band,
    interval,
    iqm,
    mean,
    performance_profile,
)

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
    "train/reached_open": "episodes that open it",
    "train/reached_lift": "episodes that lift it",
    "train/reached_handle": "episodes that hold the handle",
}


class Look:
    """How each method is drawn, the same in every panel: by colour and, for print, by dashes."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = list(labels)
        self._styles = styles(self.labels)

    def colour(self, label: str) -> str:
        """The method's colour."""
        return self._styles[label].colour

    def line(self, label: str) -> dict[str, Any]:
        """Arguments of a line."""
        dashes = DASHES[self.labels.index(label) % len(DASHES)]
        return {"color": self.colour(label), "dashes": dashes or (None, None), "label": label}


def title(metric: str) -> str:
    """A metric in words."""
    return TITLES.get(metric, metric)


def draw_curves(axes: Axes, groups: Sequence[Group], metric: str, look: Look) -> None:
    """The mean of each method's runs over steps, with its band where there are two or more."""
    unit = _step_unit(groups, metric)
    for group in groups:
        grid = common_grid(group.runs, metric)
        if not len(grid):
            continue
        values = curves(group, metric, grid)  # (runs, steps)
        axes.plot(grid / unit[0], values.mean(0), **look.line(group.label))
        if len(values) > 1:
            band = curve_band({group.task: values}, "mean")
            low, high = np.clip([band.low, band.high], *bounds(metric))
            axes.fill_between(
                grid / unit[0], low, high, color=look.colour(group.label), alpha=BAND_ALPHA, lw=0
            )
    axes.set(xlabel=unit[1], ylabel=title(metric))
    limit(axes, metric)


def draw_scores(
    axes: Axes, scores: Mapping[str, NDArray[np.float64]], metric: str, look: Look
) -> None:
    """Final scores of methods on one task: every run a dot, the mean a bar with its interval."""
    for place, (label, values) in enumerate(scores.items()):
        draw_bar(axes, place, mean({"": values}), look.colour(label))
        spread = 0.4 * (np.arange(len(values)) / max(len(values) - 1, 1) - 0.5 * (len(values) > 1))
        axes.plot(place + spread, np.sort(values), ".", color="black", markersize=3)
        if len(values) > 1:
            draw_whisker(axes, place, interval({"": values}, "mean"), metric)
    axes.set_xticks(range(len(scores)), list(scores), rotation=30, ha="right")
    axes.set_ylabel(f"final {title(metric)}")
    limit(axes, metric)


def draw_aggregate(
    axes: Axes, scores: Mapping[str, TaskScores], statistic: Statistic, metric: str, look: Look
) -> None:
    """An aggregate over tasks for each method, a bar with its interval."""
    for place, (label, by_task) in enumerate(scores.items()):
        value = {"iqm": iqm, "mean": mean}[statistic](by_task)
        draw_bar(axes, place, value, look.colour(label))
        if all(len(values) > 1 for values in by_task.values()):
            draw_whisker(axes, place, interval(by_task, statistic), metric)
    axes.set_xticks(range(len(scores)), list(scores), rotation=30, ha="right")
    limit(axes, metric)


def draw_profiles(axes: Axes, scores: Mapping[str, TaskScores], metric: str, look: Look) -> None:
    """For each method the share of runs above every score."""
    low, high = bounds(metric)
    if not np.isfinite(high):
        everything = np.concatenate([x for by_task in scores.values() for x in by_task.values()])
        low, high = min(0.0, everything.min()), everything.max()
    levels = np.linspace(low, high, 101)
    for label, by_task in scores.items():
        above = [mean({task: x > level for task, x in by_task.items()}) for level in levels]
        axes.plot(levels, above, **look.line(label))
        if all(len(values) > 1 for values in by_task.values()):
            band = performance_profile(by_task, levels)
            axes.fill_between(
                levels, band.low, band.high, color=look.colour(label), alpha=BAND_ALPHA, lw=0
            )
    axes.set(xlabel=f"final {title(metric)}", ylabel="share of runs above", ylim=(-0.03, 1.03))


def draw_bar(axes: Axes, place: float, value: float, colour: str) -> None:
    """A bar from zero, outlined so that print without colour shows it."""
    axes.bar(place, value, width=0.7, color=colour, alpha=0.6, edgecolor="black", linewidth=0.6)


def draw_whisker(axes: Axes, place: float, estimate: Estimate, metric: str) -> None:
    """The interval about the end of a bar."""
    low, high = np.clip([estimate.low, estimate.high], *bounds(metric))
    lengths = [[max(estimate.value - low, 0.0)], [max(high - estimate.value, 0.0)]]
    axes.errorbar(place, estimate.value, lengths, color="black", capsize=3, linewidth=1)


def limit(axes: Axes, metric: str) -> None:
    """Shows success rates from none to all, so that panels can be compared at a glance."""
    if metric.endswith("/success"):
        axes.set_ylim(-0.03, 1.03)


def _step_unit(groups: Sequence[Group], metric: str) -> tuple[float, str]:
    steps = [run.curve(metric)[0] for group in groups for run in group.runs]
    most = max((s[-1] for s in steps if len(s)), default=0.0)
    counted = "frames" if all(of_suite(group.task) for group in groups) else "steps"
    return (1e6, f"million {counted}") if most >= 1e6 else (1e3, f"thousand {counted}")
