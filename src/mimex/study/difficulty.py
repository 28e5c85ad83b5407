"""The difficulty map: where a task is hard because reward is hard to find.

The same agent on every task with more and less reward. Where dense reward is learned from and
sparse is not, though somebody earns it, exploration is the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from mimex.study.groups import Group
from mimex.study.statistics import final_value

MILESTONES = {"lift": "lifted", "open": "opened", "goal": "reached"}
"""What happens on the way to a success, by the name of its reward; the first that a task has."""


@dataclass(frozen=True)
class Cell:
    """What the runs of one group came to; means over seeds.

    Attributes:
        group: The runs.
        success: Evaluated, at the end.
        milestone: What ``rate`` is about: "lifted", "opened" or "reached".
        rate: The share of training episodes at the end in which the milestone was met; None if
            the runs did not report it.
        first_reward: The first environment step with a reward above zero, the median over runs,
            infinite for those that met none; None if the runs did not report it.
    """

    group: Group
    success: float
    milestone: str
    rate: float | None
    first_reward: float | None

    @property
    def steps(self) -> int:
        """That all runs made."""
        return int(min(run.columns["step"][-1] for run in self.group.runs))

    @property
    def earliness(self) -> float | None:
        """1 for a reward at the first step, 0 for none in the whole run; logarithmic between."""
        if self.first_reward is None:
            return None
        shares = np.log10(max(self.first_reward, 1)) / np.log10(max(self.steps, 10))
        return float(max(0.0, 1 - shares))


def difficulty(groups: Sequence[Group]) -> list[Cell]:
    """One cell for every group, of those runs that have been evaluated by success."""
    cells = []
    for group in groups:
        told = tuple(run for run in group.runs if len(run.curve("eval/success")[0]))
        if told:
            cells.append(_cell(Group(group.task, group.label, told)))
    return cells


def _cell(group: Group) -> Cell:
    runs = group.runs
    reported = [name for name in MILESTONES if f"train/reached_{name}" in runs[0].columns]
    name = reported[0] if reported else "goal"
    rates = [run.curve(f"train/reached_{name}") for run in runs]
    firsts = [run.curve("explore/first_reward")[1] for run in runs]
    return Cell(
        group,
        float(np.mean([final_value(*run.curve("eval/success")) for run in runs])),
        MILESTONES[name],
        float(np.mean([final_value(*curve) for curve in rates])) if reported else None,
        float(np.median([x[-1] if len(x) else np.inf for x in firsts])) if reported else None,
    )


def difficulty_figure(cells: Sequence[Cell]) -> Figure:
    """The map as three tables of coloured cells: success, milestone, first step with reward."""
    tasks = list(dict.fromkeys(cell.group.task for cell in cells))
    labels = list(dict.fromkeys(cell.group.label for cell in cells))
    # What colours a cell, from dark to light, and what is written there. Dark is hard in all
    # three: late is coloured like rarely.
    panels: dict[str, tuple[Callable[[Cell], float | None], Callable[[Cell], str]]] = {
        "success, evaluated": (lambda cell: cell.success, lambda cell: f"{cell.success:.0%}"),
        "lifted, opened or reached": (lambda cell: cell.rate, lambda cell: f"{cell.rate:.0%}"),
        "first step with reward": (lambda cell: cell.earliness, _first_step),
    }
    figure = Figure(figsize=(8.2, 0.9 + 0.33 * len(tasks)), layout="constrained")
    for place, (title, (shade, words)) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), place)
        shades = np.full((len(tasks), len(labels)), np.nan)
        for cell in cells:
            value = shade(cell)
            if value is not None:
                row, column = tasks.index(cell.group.task), labels.index(cell.group.label)
                shades[row, column] = value
                colour = "white" if value < 0.5 else "black"
                axes.text(column, row, words(cell), ha="center", va="center", color=colour)
        axes.imshow(shades, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        axes.set_title(title)
        axes.set_xticks(range(len(labels)), labels)
        axes.set_yticks(range(len(tasks)), tasks if place == 1 else [""] * len(tasks))
        axes.tick_params(length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
    return figure


def _first_step(cell: Cell) -> str:
    step = cell.first_reward
    if step is None or not np.isfinite(step):
        return "never"
    if step < 1000:
        return f"{step:.0f}"
    return f"{step / 1e6:.1f}M" if step >= 1e6 else f"{step / 1e3:.0f}k"
