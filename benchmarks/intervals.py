"""Coverage of the intervals of `mimex.study.statistics`, by simulation.

    python -m benchmarks.intervals            prints the tables
    python -m benchmarks.intervals --write    also writes benchmarks/results/intervals.md

Scores are drawn from distributions whose aggregate is known; the coverage is the share of intervals
that contain it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import scipy.stats
from numpy.typing import NDArray
from rich.progress import track

from mimex.study.statistics import interval, iqm, mean, probability_of_improvement

RESULTS = Path(__file__).parent / "results" / "intervals.md"
SIZES = ((8, 3), (8, 5), (8, 7), (8, 10), (2, 3), (2, 5), (1, 3), (1, 5), (1, 7), (1, 10))
POPULATION = 200_000  # scores of each task from which the truth is taken

Draw = Callable[[int, int, int, np.random.Generator], NDArray[np.float64]]
Scores = dict[str, NDArray[np.float64]]


def normal(task: int, tasks: int, runs: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Tasks of different difficulty; every other one varies twice as much."""
    return generator.normal(task / max(tasks - 1, 1), 0.15 * (1 + task % 2), runs)


def partial(
    task: int, tasks: int, runs: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Success rates anywhere from 0 to 1."""
    rate = (task + 1) / (tasks + 1)
    return generator.beta(4 * rate, 4 * (1 - rate), runs)


def all_or_nothing(
    task: int, tasks: int, runs: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Success rates of runs that solve the task or do not."""
    solved = generator.random(runs) < (task + 1) / (tasks + 1)
    return np.where(solved, generator.beta(20, 2, runs), generator.beta(1, 20, runs))


def skewed(task: int, tasks: int, runs: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Returns of which a few are far above the others."""
    return generator.lognormal(0.2 * task, 0.8, runs)


DISTRIBUTIONS: dict[str, Draw] = {
    "normal": normal,
    "success, partial": partial,
    "success, all or nothing": all_or_nothing,
    "skewed returns": skewed,
}


def scores(draw: Draw, tasks: int, runs: int, generator: np.random.Generator) -> Scores:
    return {str(task): draw(task, tasks, runs, generator) for task in range(tasks)}


def samples(draw: Draw, tasks: int, runs: int, times: int) -> Iterator[Scores]:
    generator = np.random.default_rng([tasks, runs])
    for _ in range(times):
        yield scores(draw, tasks, runs, generator)


def coverage(draw: Draw, statistic: str, tasks: int, runs: int, times: int) -> float:
    aggregate = {"iqm": iqm, "mean": mean}[statistic]
    truth = aggregate(scores(draw, tasks, POPULATION, np.random.default_rng(0)))
    hits = 0
    for seed, drawn in enumerate(samples(draw, tasks, runs, times)):
        found = interval(drawn, statistic, seed=seed)
        hits += found.low <= truth <= found.high
    return hits / times


def scipy_coverage(method: str, tasks: int, runs: int, times: int) -> float:
    """Return the coverage of SciPy's bootstrap of the mean of normal scores."""
    truth = np.mean([task / max(tasks - 1, 1) for task in range(tasks)])
    hits = 0
    for seed, drawn in enumerate(samples(normal, tasks, runs, times)):
        found = scipy.stats.bootstrap(
            tuple(drawn.values()),
            lambda *x, axis=-1: np.mean([np.mean(part, axis=axis) for part in x], axis=0),
            n_resamples=999,
            method=method,
            rng=seed,
        ).confidence_interval
        hits += found.low <= truth <= found.high
    return hits / times


def improvement_coverage(shift: float, tasks: int, runs: int, times: int) -> float:
    """Return the coverage for normal scores of which one method's are shifted by some std."""
    truth = scipy.stats.norm.cdf(shift / np.sqrt(2))
    generator = np.random.default_rng([tasks, runs])
    hits = 0
    for _ in range(times):
        better = {str(t): generator.normal(t + shift, 1, runs) for t in range(tasks)}
        worse = {str(t): generator.normal(t, 1, runs) for t in range(tasks)}
        found = probability_of_improvement(better, worse)
        hits += found.low <= truth <= found.high
    return hits / times


def table(times: int) -> str:
    head = " | ".join(f"{tasks} x {runs}" for tasks, runs in SIZES)
    rule = "|---" * (len(SIZES) + 1) + "|"
    lines = [f"`python -m benchmarks.intervals --write --times {times}`", ""]
    lines += [
        f"Share of {times} intervals at 95 % that contain the truth, by tasks x seeds, itself "
        f"known to about ±{1.96 * np.sqrt(0.95 * 0.05 / times):.1%}.",
        "",
    ]
    for statistic in ("iqm", "mean"):
        lines += [f"| {statistic} of scores | {head} |", rule]
        for name, draw in track(DISTRIBUTIONS.items(), description=statistic):
            cells = [coverage(draw, statistic, *size, times) for size in SIZES]
            lines.append(f"| {name} | " + " | ".join(f"{cell:.1%}" for cell in cells) + " |")
        lines.append("")
    lines += [f"| probability of improvement | {head} |", rule]
    for shift in (0.0, 0.75, 1.5, 2.5):
        cells = [improvement_coverage(shift, *size, times) for size in SIZES]
        chance = scipy.stats.norm.cdf(shift / np.sqrt(2))
        lines.append(f"| truth {chance:.0%} | " + " | ".join(f"{c:.1%}" for c in cells) + " |")
    lines += ["", "For comparison, SciPy's bootstrap of the same normal scores' mean:", ""]
    lines += [f"| method | {head} |", rule]
    for method in track(("percentile", "BCa"), description="scipy"):
        cells = [scipy_coverage(method, *size, times) for size in SIZES]
        lines.append(f"| {method} | " + " | ".join(f"{cell:.1%}" for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=1000, help="intervals per cell")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    text = table(args.times)
    print(text)
    if args.write:
        RESULTS.write_text("# Coverage of the intervals\n\n" + text)


if __name__ == "__main__":
    main()
