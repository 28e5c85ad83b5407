"""What exploration costs: the speed of training with MIMEx of several sizes, beside what it finds.

    mimex study run benchmarks/plans/price.toml --jobs 2 --threads 1
    python -m benchmarks.curves price RUNS         writes the curves of what they found
    python -m benchmarks.price --write             measures speed; table and figure of both

Methods and their settings are those of the plan. They take turns, one update each, on the same
machine; speed is a share of plain PPO's, by the clock and by processor time. Coverage is the share
of the space before the robot that the hand has been to within the plan's steps. The dotted line is
the speed that a default should keep, 85 %.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections import defaultdict
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from benchmarks.machine import describe
from benchmarks.train import Measured
from mimex.nn.parallel import available_cores, keep_memory, use_workers
from mimex.study.figures import STYLE
from mimex.study.plan_file import read_plan

HERE = Path(__file__).parent
PLAN, CURVES = HERE / "plans" / "price.toml", HERE / "results" / "learning" / "price"
RESULTS, FIGURE = HERE / "results" / "price.md", HERE / "results" / "price"
PLAIN = "none"


def labels() -> dict[str, str]:
    """What the plan calls a method, by how it is written in the names of its runs."""
    return {_method(run.name): run.labels["method"] for run in read_plan(PLAN).runs("cpu")}


def _method(run: str) -> str:
    return run.split("-", 1)[1].rsplit("-", 1)[0]  # of TASK-METHOD-SEED


def found() -> dict[str, list[tuple[float, str]]]:
    """By method, of each seed: coverage at the end, and the step of the first reward."""
    by_method, named = defaultdict(list), labels()
    for path in sorted(CURVES.glob("*.csv")):
        with path.open() as file:
            rows = list(csv.DictReader(file))
        coverage = max(float(row["explore/coverage"] or 0) for row in rows)
        first = rows[-1].get("explore/first_reward")
        by_method[named[_method(path.stem)]].append(
            (coverage, f"{float(first):,.0f}" if first else "never")
        )
    return dict(by_method)


def speeds(updates: int) -> dict[str, tuple[float, float, float]]:
    """By method: steps/s, and the share of plain PPO's by the clock and by processor time."""
    runs = read_plan(PLAN).runs("cpu", seeds=1)
    measured = {run.labels["method"]: Measured(run.config()) for run in runs}
    for _ in range(updates):
        for each in measured.values():
            each.update()
    plain = measured[PLAIN]
    made = {}
    for name, each in measured.items():
        ratios = [a / b for a, b in zip(plain.totals, each.totals, strict=True)]
        made[name] = (
            each.steps / statistics.median(each.totals),
            statistics.median(ratios),
            each.per_cpu_second / plain.per_cpu_second,
        )
        each.training.env.close()
    return made


def draw(speed: dict[str, tuple[float, float, float]]) -> Figure:
    """Coverage of each seed over the speed that is left."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.2, 2.8), layout="constrained")
        axes = figure.subplots()
        for number, (name, seeds) in enumerate(found().items()):
            share = 100 * speed[name][1]
            points = [100 * coverage for coverage, _ in seeds]
            dots = axes.plot([share] * len(points), points, "o", markersize=4)
            side = 1 if number % 2 else -1  # neighbours in the plan are often neighbours here
            axes.annotate(
                name,
                (share, sum(points) / len(points)),
                (5 * side, 0),
                textcoords="offset points",
                ha="left" if side > 0 else "right",
                va="center",
                color=dots[0].get_color(),
                fontsize=7,
            )
        axes.margins(x=0.3, y=0.1)
        axes.axvline(85, color="grey", linewidth=0.8, linestyle=":")
        axes.set_xlabel("speed of training (% of plain PPO's)")
        axes.set_ylabel("space visited (%)")
    return figure


def main() -> None:
    """Measure, print, and with --write keep table and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=12, help="of each method")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name} and the figure")
    options = parser.parse_args()
    keep_memory()
    use_workers(available_cores())
    speed, seen = speeds(options.updates), found()
    lines = [
        "# The price of exploration",
        "",
        f"`python -m benchmarks.price --updates {options.updates} --write` on {describe()}.",
        "",
        *(__doc__ or "").splitlines()[6:],
        "",
        f"![coverage over speed]({FIGURE.name}.png)",
        "",
        "| method | steps/s | of plain PPO | by processor time | space visited | first reward |",
        "|---|---|---|---|---|---|",
    ]
    for name, (rate, clock, processor) in speed.items():
        seeds = seen.get(name, [])
        visited = ", ".join(f"{coverage:.1%}" for coverage, _ in seeds)
        first = ", ".join(step for _, step in seeds)
        lines.append(
            f"| {name} | {rate:,.0f} | {clock:.0%} | {processor:.0%} | {visited} | {first} |"
        )
    print("\n".join(lines))
    if options.write:
        RESULTS.write_text("\n".join(lines) + "\n")
        draw(speed).savefig(FIGURE.with_suffix(".png"), dpi=200)


if __name__ == "__main__":
    main()
