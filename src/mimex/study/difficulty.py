"""The difficulty map: where a task is hard because reward is hard to find.

The same agent on every task with more and less reward. Where dense reward is learned from and
sparse is not, though somebody earns it, exploration is the problem.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from mimex.study.groups import Group
from mimex.study.statistics import final_value

MILESTONES = {"lift": "lifted", "open": "opened", "goal": "reached"}
"""What happens on the way to a success, by the name of its reward; the first that a task has."""


def final_mean(group: Group, metric: str) -> float | None:
    """What the runs of a group came to at the end, the mean; None if none reported the metric."""
    told = [run.curve(metric) for run in group.runs if len(run.curve(metric)[0])]
    return float(np.mean([final_value(*curve) for curve in told])) if told else None


def milestone(group: Group) -> tuple[str, float | None]:
    """What comes before a success, and the share of training episodes at the end that met it."""
    for name, words in MILESTONES.items():
        rate = final_mean(group, f"train/reached_{name}")
        if rate is not None:
            return words, rate
    return MILESTONES["goal"], None


def first_reward(group: Group) -> float | None:
    """The first environment step with a reward above zero, the median over runs.

    Infinite for runs that met none; None if the runs do not report milestones, and so not this.
    """
    if milestone(group)[1] is None:
        return None
    firsts = [run.curve("explore/first_reward")[1] for run in group.runs]
    return float(np.median([x[-1] if len(x) else np.inf for x in firsts]))


def difficulty_figure(groups: Sequence[Group]) -> Figure:
    """The map as tables of colored cells: success, milestone, first reward, episode length."""
    tasks = list(dict.fromkeys(group.task for group in groups))
    labels = list(dict.fromkeys(group.label for group in groups))
    # By group: how light its cell is, and what is written there.
    panels: dict[str, list[tuple[float | None, str]]] = {
        "success, evaluated": [_rate(final_mean(group, "eval/success")) for group in groups],
        "lifted, opened or reached": [_rate(milestone(group)[1]) for group in groups],
        "first step with reward": [_first(group) for group in groups],
        "steps of an episode": _lengths(groups),
    }
    figure = Figure(figsize=(10.4, 0.9 + 0.33 * len(tasks)), layout="constrained")
    for place, (title, cells) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), place)
        shades = np.full((len(tasks), len(labels)), np.nan)
        for group, (shade, words) in zip(groups, cells, strict=True):
            if shade is not None:
                row, column = tasks.index(group.task), labels.index(group.label)
                shades[row, column] = shade
                color = "white" if shade < 0.5 else "black"
                axes.text(column, row, words, ha="center", va="center", color=color)
        axes.imshow(shades, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        axes.set_title(title)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_yticks(range(len(tasks)), tasks if place == 1 else [""] * len(tasks))
        axes.tick_params(length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
    return figure


def _rate(value: float | None) -> tuple[float | None, str]:
    return value, "" if value is None else f"{value:.0%}"


def _lengths(groups: Sequence[Group]) -> list[tuple[float | None, str]]:
    """Dark is short, beside the longest episodes of the same task."""
    lengths = [final_mean(group, "train/episode_steps") for group in groups]
    longest: dict[str, float] = {}
    for group, length in zip(groups, lengths, strict=True):
        longest[group.task] = max(longest.get(group.task, 1.0), length or 0.0)
    return [
        (None, "") if length is None else (length / longest[group.task], f"{length:.0f}")
        for group, length in zip(groups, lengths, strict=True)
    ]


def _first(group: Group) -> tuple[float | None, str]:
    """Dark is hard: 1 for a reward at the first step, 0 for none; logarithmic between."""
    step = first_reward(group)
    if step is None:
        return None, ""
    if not np.isfinite(step):
        return 0.0, "never"
    steps = min(run.columns["step"][-1] for run in group.runs)
    lightness = max(0.0, 1 - np.log10(max(step, 1)) / np.log10(max(steps, 10)))
    if step < 1000:
        return lightness, f"{step:.0f}"
    return lightness, f"{step / 1e6:.1f}M" if step >= 1e6 else f"{step / 1e3:.0f}k"
