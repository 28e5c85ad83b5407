"""The search for the bonuses' learning rates and betas, from committed curves alone.

    mimex study run benchmarks/plans/bonus_search.toml --jobs 2 --threads 1    continues
    python -m benchmarks.curves bonus-search studies/bonus_search-cpu         writes its curves
    python -m benchmarks.bonus_search                       writes results/bonus_search.md

The mean height of each run's curve of success, by task and seed, and over the tasks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.suite import RESULTS, areas, read_curves
from mimex.study.figures import by_task

PLAN = Path(__file__).parent / "plans" / "bonus_search.toml"


def table() -> str:
    """Settings by tasks: areas in per cent, of the first seed and, where it was run, the second."""
    groups = read_curves(str(PLAN), "bonus-search")
    tasks, scores = list(by_task(groups)), areas(groups)
    lines = [
        "| | " + " | ".join(task.rpartition("/")[2] for task in tasks) + " | mean |",
        "|---|" + "---|" * (len(tasks) + 1),
    ]
    for label, found in scores.items():
        by_seed = [np.asarray(found[task]) for task in tasks]
        means = np.mean(by_seed, axis=0)
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

{table()}"""
    (RESULTS / "bonus_search.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
