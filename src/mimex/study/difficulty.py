"""The difficulty map: where a task is hard because reward is hard to find.

Plain PPO on every task with dense, sparse and sparser reward. Where dense reward is learned from
and sparse is not, though the task's scripted expert earns it, exploration is the problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mimex.envs.reward import SHAPINGS
from mimex.study.runs import Run
from mimex.study.statistics import final_value

MILESTONES = {"lift": "lifted", "open": "opened", "goal": "reached"}
"""What happens on the way to a success, by the name of its reward; the first that a task has."""

SOLVED, UNSOLVED = 0.5, 0.1
"""Success rates from which a task counts as learned, and up to which as not."""


@dataclass(frozen=True)
class Cell:
    """What runs of one task with one reward came to; means over seeds.

    Attributes:
        task: The task.
        reward: "dense", "sparse" or "sparser".
        seeds: How many runs.
        steps: That all of them made.
        finished: Whether all of them reached their budget.
        success: Evaluated, at the end.
        milestone: What ``rate`` is about: "lifted", "opened" or "reached".
        rate: The share of training episodes at the end in which the milestone was met; None if
            the runs did not report it.
        first_reward: The first environment step with a reward above zero, the median over runs,
            infinite for those that met none; None if the runs did not report it.
    """

    task: str
    reward: str
    seeds: int
    steps: int
    finished: bool
    success: float
    milestone: str
    rate: float | None
    first_reward: float | None


def difficulty(runs: Sequence[Run]) -> list[Cell]:
    """One cell for every task and reward, in the order of the tasks, from easy to hard.

    Runs with a bonus do not count.
    """
    runs = [run for run in runs if run.config.get("bonus") == "none"]
    tasks = dict.fromkeys(run.task for run in runs)
    found = []
    for task in tasks:
        for reward in SHAPINGS:
            chosen = [run for run in runs if (run.task, run.config.get("reward")) == (task, reward)]
            told = [run for run in chosen if len(run.curve("eval/success")[0])]
            if told:
                found.append(_cell(task, reward, told))
    return found


def verdict(cells: Sequence[Cell]) -> str:
    """What the cells of one task say, in words: of success, else of what comes before it."""
    by = {cell.reward: cell for cell in cells if cell.finished}
    if not {"dense", "sparse"} <= by.keys():
        return "not known: needs finished runs with dense and with sparse reward"
    dense, sparse = by["dense"], by["sparse"]
    if sparse.success >= SOLVED:
        return "no: sparse reward is enough"
    if dense.success >= SOLVED:
        if sparse.success <= UNSOLVED:
            return "yes: dense is learned, sparse is not"
        return "partly: sparse is learned in part"
    rates = dense.rate or 0.0, sparse.rate or 0.0
    compared = f"{dense.milestone} {rates[0]:.0%} with dense, {rates[1]:.0%} with sparse"
    if rates[0] >= SOLVED:
        answer = "yes" if rates[1] <= UNSOLVED else "no" if rates[1] >= SOLVED else "partly"
        return f"{answer}, as far as it is learned: {compared}"
    if rates[0] > UNSOLVED and rates[1] == 0:
        return f"likely: {compared}, but dense is not learned either"
    return "not known: dense reward is not enough either"


def difficulty_table(cells: Sequence[Cell], experts: Mapping[str, float] | None = None) -> str:
    """The map as a Markdown table, and below it what it says of each task.

    Args:
        cells: Of any tasks and rewards.
        experts: Success rates of the scripted experts by task.
    """
    lines = [
        "| task | reward | steps | success | on the way | first step with reward |",
        "|---|---|---|---|---|---|",
    ]
    for cell in cells:
        rate = "not reported" if cell.rate is None else f"{cell.milestone} {cell.rate:.0%}"
        first = "not reported" if cell.first_reward is None else _step(cell.first_reward)
        lines.append(
            f"| {cell.task} | {cell.reward} | {cell.steps:,}{'' if cell.finished else ' so far'} "
            f"| {cell.success:.0%} | {rate} "
            f"| {first} |"
        )
    expert_column = experts is not None
    lines += ["", f"| task | is exploration the problem? |{' scripted expert |' * expert_column}"]
    lines.append("|---|---|" + "---|" * expert_column)
    for task in dict.fromkeys(cell.task for cell in cells):
        line = f"| {task} | {verdict([cell for cell in cells if cell.task == task])} |"
        lines.append(line if experts is None else f"{line} {experts[task]:.0%} |")
    return "\n".join(lines) + "\n"


def difficulty_figure(cells: Sequence[Cell]) -> Figure:
    """The map as three tables of coloured cells: success, milestone, first step with reward."""
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    figure = Figure(figsize=(8.2, 0.9 + 0.33 * len(tasks)), layout="constrained")
    rates = {(c.task, c.reward): (c.rate, f"{c.rate:.0%}") for c in cells if c.rate is not None}
    success = {(cell.task, cell.reward): (cell.success, f"{cell.success:.0%}") for cell in cells}
    # Dark is hard in all three: late is coloured like rarely.
    found = {
        (c.task, c.reward): (_earliness(c.first_reward, c.steps), _short(c.first_reward))
        for c in cells
        if c.first_reward is not None
    }
    titles = ("success, evaluated", "lifted, opened or reached", "first step with reward")
    for place, (title, shown) in enumerate(zip(titles, (success, rates, found), strict=True)):
        axes = figure.add_subplot(1, 3, place + 1)
        _draw_cells(axes, tasks, shown)
        axes.set_title(title)
        axes.set_yticks(range(len(tasks)), tasks if place == 0 else [""] * len(tasks))
    return figure


def _cell(task: str, reward: str, runs: Sequence[Run]) -> Cell:
    reported = [name for name in MILESTONES if f"train/reached_{name}" in runs[0].columns]
    name = reported[0] if reported else "goal"
    rates = [run.curve(f"train/reached_{name}") for run in runs]
    firsts = [run.curve("explore/first_reward")[1] for run in runs]
    return Cell(
        task,
        reward,
        len(runs),
        int(min(run.columns["step"][-1] for run in runs)),
        all(run.finished for run in runs),
        float(np.mean([final_value(*run.curve("eval/success")) for run in runs])),
        MILESTONES[name],
        float(np.mean([final_value(*curve) for curve in rates])) if reported else None,
        float(np.median([x[-1] if len(x) else np.inf for x in firsts])) if reported else None,
    )


def _earliness(step: float, steps: int) -> float:
    """1 for a reward at the first step, 0 for none in the whole run; logarithmic between."""
    return float(max(0.0, 1 - np.log10(max(step, 1)) / np.log10(max(steps, 10))))


def _step(step: float) -> str:
    return f"{step:,.0f}" if np.isfinite(step) else "never"


def _short(step: float) -> str:
    if not np.isfinite(step):
        return "never"
    if step < 1000:
        return f"{step:.0f}"
    return f"{step / 1e6:.1f}M" if step >= 1e6 else f"{step / 1e3:.0f}k"


def _draw_cells(
    axes: Axes, tasks: Sequence[str], shown: Mapping[tuple[str, str], tuple[float, str]]
) -> None:
    values = np.full((len(tasks), len(SHAPINGS)), np.nan)
    for (task, reward), (value, _) in shown.items():
        values[tasks.index(task), SHAPINGS.index(reward)] = value
    axes.imshow(values, vmin=0, vmax=1, cmap="cividis", aspect="auto")
    for (task, reward), (value, words) in shown.items():
        place = SHAPINGS.index(reward), tasks.index(task)
        axes.text(
            *place, words, ha="center", va="center", color="white" if value < 0.5 else "black"
        )
    axes.set_xticks(range(len(SHAPINGS)), SHAPINGS)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
