"""Time to load and aggregate a large study: 1,000 run folders of 1,000 rows.

    python -m benchmarks.studies            prints the table
    python -m benchmarks.studies --write    also writes benchmarks/results/studies.md

The folders are made first, in a temporary place (0.9 GB), with the names and the numbers of
digits that `mimex train` writes; all metrics of all rows are loaded.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.machine import describe
from mimex.study.groups import common_grid, curves, final_scores, group_runs
from mimex.study.runs import find_runs
from mimex.study.statistics import curve_band, interval

RESULTS = Path(__file__).parent / "results" / "studies.md"
TASKS, METHODS, SEEDS, ROWS = 10, 10, 10, 1000
METRICS = (
    "train/success", "train/return", "train/episode_steps", "train/episodes", "bonus/mean",
    "bonus/probe", "bonus/beta", "bonus/share", "explore/coverage", "ppo/policy_loss",
    "ppo/value_loss", "ppo/approx_kl", "ppo/clip_fraction", "ppo/grad_norm", "ppo/lr", "ppo/std",
    "ppo/entropy", "time/acting", "time/simulation", "time/windows", "time/bonus",
    "time/learning",
)  # fmt: skip
EVALUATED_EVERY = 15  # rows, as 250,000 steps of 16,384 each


def make(folder: Path, runs: int, rows: int) -> None:
    generator = np.random.default_rng(0)
    for number in range(runs):
        seed, rest = number % SEEDS, number // SEEDS
        run = folder / f"run-{number:04d}"
        run.mkdir()
        settings = {"task": f"task{rest % TASKS}", "seed": seed, "steps": 16_384 * rows}
        config = settings | {"bonus": "mimex", "mimex": {"length": 1 + rest // TASKS}}
        (run / "config.json").write_text(json.dumps(config))
        values = generator.random((rows, len(METRICS))).tolist()
        lines = []
        for place, row in enumerate(values, start=1):
            metrics = dict(zip(METRICS, row, strict=True))
            if place % EVALUATED_EVERY == 0 or place == rows:
                metrics["eval/success"] = round(64 * row[0]) / 64
            lines.append(json.dumps({"step": 16_384 * place} | metrics))
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def measure(folder: Path) -> dict[str, float]:
    """Seconds of each part."""
    seconds, start = {}, time.perf_counter()
    runs = find_runs([folder])
    seconds["load"] = time.perf_counter() - start
    start = time.perf_counter()
    groups = group_runs(runs)
    for group in groups:
        grid = common_grid(group.runs, "train/return")
        curve_band({group.task: curves(group, "train/return", grid)}, "mean")
    for by_task in final_scores(groups, "eval/success").values():
        interval(by_task, "iqm")
    seconds["aggregate"] = time.perf_counter() - start
    return seconds | {"both": sum(seconds.values())}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--runs", type=int, default=TASKS * METHODS * SEEDS)
    parser.add_argument("--rounds", type=int, default=3, help="medians are shown")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        make(Path(folder), args.runs, ROWS)
        size = sum(path.stat().st_size for path in Path(folder).glob("*/metrics.jsonl"))
        rounds = [measure(Path(folder)) for _ in range(args.rounds)]
    command = "python -m benchmarks.studies --write"
    lines = [
        f"`{command}` on {describe()}",
        "",
        f"{args.runs} run folders of {ROWS} rows with {len(METRICS) + 2} numbers, {size / 1e6:,.0f}"
        " MB of metrics.jsonl; bands of every group's return curves on a common grid, and the",
        "interquartile mean of every method's final success with its interval. Median of "
        f"{args.rounds} rounds; the files are in the page cache.",
        "",
        "| part | seconds |",
        "|---|---|",
    ]
    lines += [f"| {part} | {np.median([r[part] for r in rounds]):.1f} |" for part in rounds[0]]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.write:
        RESULTS.write_text("# Loading a large study\n\n" + text)


if __name__ == "__main__":
    main()
