"""The search for PPO's preset: raw curves of its runs, and the table made of them.

    mimex study run benchmarks/plans/search.toml --out studies/search
    mimex study run benchmarks/plans/search_pixels.toml --out studies/pixels
    python -m benchmarks.search studies/search studies/pixels
                                                      writes benchmarks/results/learning/search*

Run folders may be given in any number, also none: the table is made of all curves that are there.
Folders of benchmarks/plans/learner.toml count as runs of the preset, up to the search's budget.

A setting's score on a task is its return, averaged over a run's evaluations and over seeds, as a
share of the score with which the search began: how much and how early it learned. What a task pays
differs by a hundredfold, so that shares are averaged over tasks, not returns.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.curves import write_csv
from mimex.study.plan import PlannedRun
from mimex.study.plan_file import find_plan
from mimex.study.runs import find_runs

PLANS = Path(__file__).parent / "plans"
RESULTS = Path(__file__).parent / "results" / "learning"
BASE, PRESET = "before", "3-x-16-discount-0.98-std-0.5"
EVERY = 250_000  # steps from one evaluation that counts to the next; some runs had no more
PIXELS, PIXELS_EVERY = "FrankaReach_pixels", 50_000

Runs = dict[str, dict[str, list[tuple[float, float]]]]
"""By setting and task, each seed's mean return and last success within the budget."""


def read(folder: Path, budgets: dict[str, int]) -> Runs:
    """All curves that were kept."""
    found: Runs = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("*.csv")):
        task, _, rest = path.stem.partition("-")
        setting = rest.rpartition("-")[0]
        with path.open() as file:
            rows = [row for row in csv.DictReader(file) if row["eval/return"]]
        # Evaluations come with the update that passes their step.
        every = PIXELS_EVERY if task == PIXELS else EVERY
        after = [(row, float(row["step"]) % every) for row in rows]
        kept = [row for row, late in after if late < every / 8]
        kept = [row for row in kept if float(row["step"]) <= budgets[task] * 1.07]
        if not kept or float(kept[-1]["step"]) < budgets[task]:
            continue  # it was ended before
        score = float(np.mean([float(row["eval/return"]) for row in kept]))
        found[setting][task].append((score, float(kept[-1]["eval/success"])))
    return found


def table(found: Runs, tasks: list[str]) -> list[str]:
    """A row for each setting, a column for each task, and the mean over tasks."""
    titles = [task.replace("_", " from ") for task in tasks]
    lines = ["| setting | tasks | mean | worst | " + " | ".join(titles) + " |"]
    lines.append("|---" * (4 + len(tasks)) + "|")
    for setting in sorted(found, key=lambda name: (name != BASE, name == PRESET, name)):
        shares, cells = [], []
        for task in tasks:
            ours, base = found[setting].get(task), found[BASE].get(task)
            if not ours or not base:
                cells.append("")
                continue
            share = np.mean([score for score, _ in ours]) / np.mean([score for score, _ in base])
            shares.append(share)
            cells.append(f"{share:.2f} ({', '.join(f'{last:.0%}' for _, last in ours)})")
        summed = f"{np.mean(shares):.2f} | {min(shares):.2f}" if shares else " | "
        lines.append(f"| {setting} | {len(shares)} | {summed} | " + " | ".join(cells) + " |")
    return lines


def planned(plan: str) -> list[PlannedRun]:
    """A plan's runs of one seed."""
    return find_plan(str(PLANS / plan)).runs("cpu", seeds=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", type=Path, nargs="*", help="studies whose runs are to be kept")
    options = parser.parse_args()
    budgets = {run.task: run.steps for run in planned("search.toml")}
    budgets[PIXELS] = planned("search_pixels.toml")[0].steps
    for run in find_runs(options.studies) if options.studies else []:
        if len(run.curve("eval/return")[0]):
            name = run.name.replace("-ppo-", f"-{PRESET}-")  # the learner's plan
            if run.config["observation"] == "pixels":
                name = name.replace(run.task, PIXELS)
            write_csv(run, RESULTS / "search" / f"{name}.csv")
    lines = table(read(RESULTS / "search", budgets), list(budgets))
    text = [
        "# The search for the preset",
        "",
        "Return averaged over the evaluations (every 250,000 steps; from pixels every 50,000, of",
        "32 episodes) within the search's budget, as a share of that of the preset with which it",
        f'began, "{BASE}" (1 = as much, as early); in brackets the last evaluated success of each',
        "seed, of 64 episodes. The settings are in `benchmarks/plans/search.toml` and",
        "`search_pixels.toml`. It was a race: what did not lead on the first tasks was not tried",
        "on the others.",
        "",
        *lines,
        "",
        "`mimex study run benchmarks/plans/search.toml`, then `python -m benchmarks.search STUDY`;",
        "raw curves: `search/`.",
        "",
    ]
    (RESULTS / "search.md").write_text("\n".join(text))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
