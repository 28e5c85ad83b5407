"""The search for the bonuses' settings, and what was tried of MIMEx, from committed curves alone.

    mimex study run benchmarks/plans/bonus_search.toml --jobs 2 --threads 1    continues
    python -m benchmarks.curves bonus-search studies/bonus_search-cpu         writes its curves
    python -m benchmarks.bonus_search       writes results/bonus_search.md and candidates.md

The mean height of each run's curve of success, by task and seed, and over the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.suite import (
    CURVES,
    GATED,
    RESULTS,
    areas,
    improvement_table,
    read_csv,
    read_curves,
    suite_table,
)
from mimex.study.figures import by_task
from mimex.study.groups import Group, group_runs
from mimex.study.runs import Run

PLAN = Path(__file__).parent / "plans" / "bonus_search.toml"
NEXT = PLAN.with_name("ends_at_next.toml")
AGAINST = ("rnd", "mimex", "pseudocount")
TASKS = ("gym/mimex/DeepSea-v0", "gym/mimex/OrderedButtons-v0", "FrankaReachUp")


def named_curves(folder: str, tasks: Sequence[str]) -> list[Group]:
    """Curves TASK-LABEL-SEED.csv of a folder in groups, whether a plan has them or not."""
    runs, labels = [], {}
    for task in tasks:
        name = task.rpartition("/")[2]
        for path in sorted((CURVES / folder).glob(f"{name}-*.csv")):
            label, _, seed = path.stem.removeprefix(f"{name}-").rpartition("-")
            config = {"task": task, "seed": int(seed), "steps": 0}
            runs.append(Run(path.stem, path, config, {}, read_csv(path)))
            labels[path.stem] = label
    return group_runs(runs, labels)


def table(groups: Sequence[Group]) -> str:
    """Settings by tasks: areas in per cent by seed, and their mean where all tasks were run."""
    tasks, scores = list(by_task(groups)), areas(groups)
    lines = [
        "| | " + " | ".join(task.rpartition("/")[2] for task in tasks) + " | mean |",
        "|---|" + "---|" * (len(tasks) + 1),
    ]
    for label, found in scores.items():
        by_seed = [np.asarray(found.get(task, ())) for task in tasks]
        means = np.mean(by_seed, axis=0) if all(map(len, by_seed)) else np.empty(0)
        cells = [", ".join(f"{100 * value:.0f}" for value in its) for its in (*by_seed, means)]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    text = f"""# The search for the bonuses' learning rates and betas

    python -m benchmarks.bonus_search

Learning rate 1e-3 (or 3e-3) and beta, seeds 100 and 101. Per cent of the area under the curve of
success. After the first seed the better two of each bonus's four settings went on, but for E3B's,
which do not differ; counts have nothing to learn. Chosen: ICM with 1e-3 and beta 1; RND, MIMEx,
pseudo-counts and disagreement with 3e-3 and beta 0.3; E3B as it was, with 1e-3 and beta 0.3; counts
with beta 0.3.

{table(read_curves(str(PLAN), "bonus-search"))}"""
    (RESULTS / "bonus_search.md").write_text(text)
    fresh = read_curves(str(NEXT), "ends-at-next")
    fresh += [
        group for group in read_curves("suite") if group.label in AGAINST and group.task in GATED
    ]
    tried = f"""# What else could be chosen about MIMEx

    python -m benchmarks.bonus_search

One choice at a time, from the defaults, seeds 100 and 101. Per cent of the area under the curve of
success. "fall" (of the error), "disagree" (several models), "newest" (hidden whole in one window of
two), "projected" and "whitened" (features) are not in the library (`benchmarks/probes.py`).

{table(named_curves("candidates", TASKS))}
Windows that end at the next observation, with the suite's seeds (`plans/ends_at_next.toml`), and
how probably a run of them has the larger area; cells as in [the suite](suite.md):

{suite_table(fresh)}
{improvement_table(fresh, "ends at next")}"""
    (RESULTS / "candidates.md").write_text(tried)
    print(text, tried, sep="\n")


if __name__ == "__main__":
    main()
