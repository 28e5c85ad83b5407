"""The search for PPO's preset from a study's run folders: table and raw curves.

    mimex study run benchmarks/plans/search.toml --out studies/search
    python -m benchmarks.search studies/search        writes benchmarks/results/learning/search*

A setting's score on a task is its return, averaged over a run's evaluations and over seeds, as a
share of the preset's: how much and how early it learned. What a task pays differs by a hundredfold,
so that shares are averaged over tasks, not returns.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.curves import write_csv
from mimex.study.groups import Group, group_runs
from mimex.study.runs import find_runs

RESULTS = Path(__file__).parent / "results" / "learning"
BASE = "preset"


def score(group: Group) -> list[float]:
    """Of each seed, the mean of all evaluated returns up to where the shortest of them is."""
    return [float(np.mean(run.curve("eval/return")[1])) for run in group.runs]


def cell(group: Group, base: Group) -> str:
    """A setting on a task: its score beside the preset's, last success of each seed, speed."""
    share = np.mean(score(group)) / np.mean(score(base))
    last = " and ".join(f"{run.curve('eval/success')[1][-1]:.0%}" for run in group.runs)
    return f"{share:.2f} ({last})"


def table(groups: Sequence[Group]) -> list[str]:
    """A row for each setting, a column for each task, and the mean over tasks."""
    tasks = list(dict.fromkeys(group.task for group in groups))
    settings = list(dict.fromkeys(group.label for group in groups))
    by = {(group.task, group.label): group for group in groups}
    lines = ["| setting | mean | worst | " + " | ".join(tasks) + " |"]
    lines.append("|---" * (3 + len(tasks)) + "|")
    for setting in settings:
        found = [task for task in tasks if (task, setting) in by]
        shares = [
            np.mean(score(by[task, setting])) / np.mean(score(by[task, BASE])) for task in found
        ]
        cells = [cell(by[task, setting], by[task, BASE]) if task in found else "" for task in tasks]
        lines.append(
            f"| {setting} | {np.mean(shares):.2f} | {min(shares):.2f} | " + " | ".join(cells) + " |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("--note", default="", help="a sentence to go under the title")
    options = parser.parse_args()
    runs = [run for run in find_runs([options.study]) if len(run.curve("eval/return")[0])]
    prefix = {run.name: run.name.removeprefix(f"{run.task}-").rpartition("-")[0] for run in runs}
    groups = group_runs(runs, prefix)
    for run in runs:
        write_csv(run, RESULTS / "search" / f"{run.name}.csv")
    text = ["# The search for the preset", "", options.note, ""] if options.note else []
    text = text or ["# The search for the preset", ""]
    text += [
        "Return averaged over all evaluations, as a share of the preset's (1 = as much, as early);",
        "in brackets the last evaluated success of each seed.",
        "",
        *table(groups),
        "",
        "`mimex study run benchmarks/plans/search.toml`, then `python -m benchmarks.search STUDY`.",
        "Raw curves: `search/`.",
        "",
    ]
    (RESULTS / "search.md").write_text("\n".join(text))
    print("\n".join(table(groups)))


if __name__ == "__main__":
    main()
