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
from mimex.study.difficulty import difficulty_figure, final_mean, first_reward, milestone
from mimex.study.figures import STYLE, by_task, save
from mimex.study.groups import Group, group_runs
from mimex.study.runs import Run, find_runs

RESULTS = Path(__file__).parent / "results"
EXPERT_SEEDS = range(50_000, 50_100)  # none of those that training starts from

SOLVED, UNSOLVED = 0.5, 0.1
"""Success rates from which a task counts as learned, and up to which as not."""


def by_reward(runs: Sequence[Run]) -> list[Group]:
    """One group for every task and reward, from easy to hard: of runs that have been evaluated.

    Runs with a bonus do not count.
    """
    labels = {
        run.name: reward
        for reward in SHAPINGS
        for run in runs
        if (run.config.get("bonus"), run.config.get("reward")) == ("none", reward)
        and len(run.curve("eval/success")[0])
    }
    return group_runs(runs, labels)


def verdict(groups: Sequence[Group]) -> str:
    """What the groups of one task say, in words: of success, else of what comes before it."""
    by = {group.label: group for group in groups if finished(group)}
    if not {"dense", "sparse"} <= by.keys():
        return "not known: needs finished runs with dense and with sparse reward"
    dense, sparse = (final_mean(by[name], "eval/success") or 0.0 for name in ("dense", "sparse"))
    if sparse >= SOLVED:
        return "no: sparse reward is enough"
    if dense >= SOLVED:
        if sparse <= UNSOLVED:
            return "yes: dense is learned, sparse is not"
        return "partly: sparse is learned in part"
    words, _ = milestone(by["dense"])
    rates = [milestone(by[name])[1] or 0.0 for name in ("dense", "sparse")]
    compared = f"{words} {rates[0]:.0%} with dense, {rates[1]:.0%} with sparse"
    if rates[0] >= SOLVED:
        answer = "yes" if rates[1] <= UNSOLVED else "no" if rates[1] >= SOLVED else "partly"
        return f"{answer}, as far as it is learned: {compared}"
    if rates[0] > UNSOLVED and rates[1] == 0:
        return f"likely: {compared}, but dense is not learned either"
    return "not known: dense reward is not enough either"


def difficulty_table(groups: Sequence[Group], experts: Mapping[str, float] | None = None) -> str:
    """The map as a Markdown table, and below it what it says of each task.

    Args:
        groups: Of any tasks and rewards.
        experts: Success rates of the scripted experts by task.
    """
    lines = [
        "| task | reward | steps | success | on the way | first step with reward | episode |",
        "|---|---|---|---|---|---|---|",
    ]
    for group in groups:
        words, rate = milestone(group)
        first, length = first_reward(group), final_mean(group, "train/episode_steps")
        lines.append(
            f"| {group.task} | {group.label} | {steps(group):,}"
            f"{'' if finished(group) else ' so far'} | {final_mean(group, 'eval/success'):.0%} "
            f"| {'not reported' if rate is None else f'{words} {rate:.0%}'} "
            f"| {'not reported' if first is None else _step(first)} "
            f"| {'not reported' if length is None else f'{length:.0f}'} |"
        )
    expert_column = experts is not None
    lines += ["", f"| task | is exploration the problem? |{' scripted expert |' * expert_column}"]
    lines.append("|---|---|" + "---|" * expert_column)
    for task, of_task in by_task(groups).items():
        line = f"| {task} | {verdict(of_task)} |"
        lines.append(line if experts is None else f"{line} {experts[task]:.0%} |")
    return "\n".join(lines) + "\n"


def steps(group: Group) -> int:
    """That all runs of a group made."""
    return int(min(run.columns["step"][-1] for run in group.runs))


def finished(group: Group) -> bool:
    """Whether all runs of a group reached their budget."""
    return all(run.finished for run in group.runs)


def _step(step: float) -> str:
    return f"{step:,.0f}" if np.isfinite(step) else "never"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="the study, or run folders")
    args = parser.parse_args()
    runs = find_runs(args.runs)
    groups = by_reward(runs)
    experts = {task: float(play(task, EXPERT_SEEDS).mean()) for task in by_task(groups)}
    table = difficulty_table(groups, experts)
    print(table)
    for run in runs:
        write_csv(run, RESULTS / "difficulty" / f"{run.name}.csv")
    with matplotlib.rc_context(STYLE):
        save(difficulty_figure(groups), RESULTS / "difficulty", ("png",))
    (RESULTS / "difficulty.md").write_text(
        "# Difficulty map\n\nPPO without a bonus, from state, one seed each: success of the last "
        "evaluations, and the mean length of the last training episodes, in steps.\n\n"
        f"![The map](difficulty.png)\n\n{table}\n{commands(runs)}"
    )


if __name__ == "__main__":
    main()
