"""The difficulty map from a study's run folders: table, figure and raw curves.

    mimex study run difficulty --scale cpu --out studies/difficulty
    python -m benchmarks.difficulty studies/difficulty       writes benchmarks/results/difficulty*

Scripted experts play 100 episodes of every task beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.curves import commands, write_csv
from mimex.envs.experts import run as play
from mimex.envs.reward import SHAPINGS
from mimex.study.difficulty import Cell, difficulty, difficulty_figure
from mimex.study.figures import STYLE, save
from mimex.study.groups import group_runs
from mimex.study.runs import Run, find_runs

RESULTS = Path(__file__).parent / "results"
EXPERT_SEEDS = range(50_000, 50_100)  # none of those that training starts from

SOLVED, UNSOLVED = 0.5, 0.1
"""Success rates from which a task counts as learned, and up to which as not."""


def cells_of(runs: Sequence[Run]) -> list[Cell]:
    """One cell for every task and reward, from easy to hard; runs with a bonus do not count."""
    labels = {
        run.name: reward
        for reward in SHAPINGS
        for run in runs
        if (run.config.get("bonus"), run.config.get("reward")) == ("none", reward)
    }
    return difficulty(group_runs(runs, labels))


def verdict(cells: Sequence[Cell]) -> str:
    """What the cells of one task say, in words: of success, else of what comes before it."""
    by = {cell.group.label: cell for cell in cells if finished(cell)}
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
            f"| {cell.group.task} | {cell.group.label} | {cell.steps:,}"
            f"{'' if finished(cell) else ' so far'} | {cell.success:.0%} | {rate} "
            f"| {first} |"
        )
    expert_column = experts is not None
    lines += ["", f"| task | is exploration the problem? |{' scripted expert |' * expert_column}"]
    lines.append("|---|---|" + "---|" * expert_column)
    for task in dict.fromkeys(cell.group.task for cell in cells):
        line = f"| {task} | {verdict([cell for cell in cells if cell.group.task == task])} |"
        lines.append(line if experts is None else f"{line} {experts[task]:.0%} |")
    return "\n".join(lines) + "\n"


def finished(cell: Cell) -> bool:
    """Whether all runs of a cell reached their budget."""
    return all(run.finished for run in cell.group.runs)


def _step(step: float) -> str:
    return f"{step:,.0f}" if np.isfinite(step) else "never"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="the study, or run folders")
    args = parser.parse_args()
    runs = find_runs(args.runs)
    cells = cells_of(runs)
    tasks = dict.fromkeys(cell.group.task for cell in cells)
    experts = {task: float(play(task, EXPERT_SEEDS).mean()) for task in tasks}
    table = difficulty_table(cells, experts)
    budget = max(cell.steps for cell in cells)
    print(table)
    for run in runs:
        write_csv(run, RESULTS / "difficulty" / f"{run.name}.csv")
    with matplotlib.rc_context(STYLE):
        save(difficulty_figure(cells), RESULTS / "difficulty", ("png", "pdf"))
    (RESULTS / "difficulty.md").write_text(
        f"# Difficulty map\n\nPPO without a bonus, from state, one seed each, {budget:,} steps.\n\n"
        f"![The map](difficulty.png)\n\n{table}\n{commands(runs)}"
    )


if __name__ == "__main__":
    main()
