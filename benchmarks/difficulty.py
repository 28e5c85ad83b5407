"""The difficulty map from a study's run folders: table, figure and raw curves.

    mimex study run difficulty --scale cpu --out studies/difficulty
    python -m benchmarks.difficulty studies/difficulty       writes benchmarks/results/difficulty*

Scripted experts play 100 episodes of every task beside it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

from benchmarks.curves import commands, write_csv
from mimex.envs.experts import run as play
from mimex.study.difficulty import difficulty, difficulty_figure, difficulty_table
from mimex.study.figures import STYLE, save
from mimex.study.runs import find_runs

RESULTS = Path(__file__).parent / "results"
EXPERT_SEEDS = range(50_000, 50_100)  # none of those that training starts from


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="the study, or run folders")
    args = parser.parse_args()
    runs = find_runs(args.runs)
    cells = difficulty(runs)
    tasks = dict.fromkeys(cell.task for cell in cells)
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
