"""The table and the figure of the runs that `benchmarks.peers` has made.

    python -m benchmarks.peers_report       writes benchmarks/results/peers.md and peers.png

Success is linear between evaluations, from 0 at the start, and a mean over seeds; steps and
minutes to a level are those of the first evaluation that reached it, a median over the seeds that
did. Budgets are what all runs of a task have: the steps of the shortest run, and the minutes in
which the fastest library has made them.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import statistics
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import describe
from benchmarks.peers import BUDGETS, LIBRARIES, RESULTS
from mimex.study.figures import STYLE, save
from mimex.study.panels import styles

FRACTIONS, LEVELS = (0.25, 0.5, 0.75, 1.0), (0.5, 0.9)
STEPS, MINUTES, SUCCESS = range(3)  # columns of a curve

Curves = dict[str, dict[str, list[NDArray[np.float64]]]]
"""By task and library one array ``(evaluations + 1, 3)`` a seed; its first row is the start."""


def load(folder: Path) -> tuple[Curves, set[str]]:
    """The curves of all runs in a folder, and what they were made with."""
    found: Curves = defaultdict(lambda: defaultdict(list))
    made = set()
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        curve = [(int(r["step"]), float(r["seconds"]) / 60, float(r["success"])) for r in rows]
        found[rows[0]["task"]][rows[0]["library"]].append(np.array([(0, 0, 0), *curve]))
        made.add(f"{rows[0]['library']} {rows[0]['version']}")
    if not found:
        raise SystemExit(f"{folder} has no runs: make some with `python -m benchmarks.peers`.")
    tasks = [*(task for task in BUDGETS if task in found)]
    return {t: {lib: found[t][lib] for lib in LIBRARIES if lib in found[t]} for t in tasks}, made


def budget(libraries: dict[str, list[NDArray[np.float64]]], axis: int) -> float:
    """The steps that all runs of a task have, or the minutes of the library that is first there."""
    steps = min(curve[-1, STEPS] for curves in libraries.values() for curve in curves)
    if axis == STEPS:
        return float(steps)
    return min(
        statistics.mean(np.interp(steps, c[:, STEPS], c[:, MINUTES]) for c in curves)
        for curves in libraries.values()
    )


def mean_success(
    curves: list[NDArray[np.float64]], axis: int, at: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Success over steps or minutes, a mean over seeds."""
    return np.mean([np.interp(at, c[:, axis], c[:, SUCCESS]) for c in curves], axis=0)


def first_at(curves: list[NDArray[np.float64]], axis: int, level: float) -> str:
    """Steps in millions or minutes to a level of success."""
    reached = [c[c[:, SUCCESS] >= level][0, axis] for c in curves if c[:, SUCCESS].max() >= level]
    if not reached:
        return "never"
    value = statistics.median(reached)
    text = f"{value / 1e6:.2f}M" if axis == STEPS else f"{value:.1f}"
    return text if len(reached) == len(curves) else f"{text} ({len(reached)} of {len(curves)})"


def table(curves: Curves, axis: int) -> list[str]:
    """Rows of the table over steps or minutes."""
    unit = "steps" if axis == STEPS else "minutes"
    names = [*(f"{f:.0%}" for f in FRACTIONS), *(f"{unit} to {level:.0%}" for level in LEVELS)]
    lines = [f"| task | library | seeds | {unit}: 100% | {' | '.join(names)} |"]
    lines.append("|---" * (4 + len(names)) + "|")
    for task, libraries in curves.items():
        end = budget(libraries, axis)
        for library, runs in libraries.items():
            cells = [f"{s:.0%}" for s in mean_success(runs, axis, end * np.array(FRACTIONS))]
            cells += [first_at(runs, axis, level) for level in LEVELS]
            size = f"{end / 1e6:.2f}M" if axis == STEPS else f"{end:.1f}"
            lines.append(f"| {task} | {library} | {len(runs)} | {size} | {' | '.join(cells)} |")
    return lines


def draw(curves: Curves, path: Path) -> None:
    """Success over steps and over minutes, a column a task; thin lines are seeds."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    look = styles(list(LIBRARIES))
    with matplotlib.rc_context(STYLE):
        size = (2.6 * len(curves) + 0.4, 4.4)
        figure, axes = plt.subplots(2, len(curves), figsize=size, squeeze=False, sharey=True)
        for column, (task, libraries) in enumerate(curves.items()):
            for axis, unit in ((STEPS, 1e6), (MINUTES, 1.0)):
                panel, longest = axes[axis, column], 0.0
                for library, runs in libraries.items():
                    colour, end = look[library].colour, min(run[-1, axis] for run in runs)
                    for run in runs if len(runs) > 1 else []:
                        x, y = run[:, axis] / unit, run[:, SUCCESS]
                        panel.plot(x, y, color=colour, alpha=0.3, linewidth=0.7)
                    grid = np.linspace(0, end, 200)
                    mean = mean_success(runs, axis, grid)
                    panel.plot(grid / unit, mean, color=colour, label=library)
                    longest = max(longest, end / unit)
                panel.set(xlim=(0, longest), ylim=(-0.02, 1.02))
                panel.set_xlabel("million steps" if axis == STEPS else "minutes")
            axes[0, column].set_title(task)
        for row in axes:
            row[0].set_ylabel("success")
        axes[0, 0].legend()
        figure.tight_layout()
        save(figure, path, ("png",))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the runs are")
    folder = parser.parse_args().results
    curves, made = load(folder)
    draw(curves, folder.with_name("peers"))
    report = [
        "# PPO beside its peers", "",
        f"Made by `python -m benchmarks.peers` and `python -m benchmarks.peers_report`: "
        f"{', '.join(sorted(made))}; {describe()}. Dense reward, state observations, one thread.",
        "", *(line.strip() for line in (__doc__ or "").splitlines()[4:]),
        "", "![Success over steps and over minutes](peers.png)",
        "", "## Over steps", "", *table(curves, STEPS),
        "", "## Over minutes of processor time", "", *table(curves, MINUTES),
        "", "## Settings", "",
        *(f"{name}: {inspect.getdoc(learner)}\n" for name, (learner, _) in LIBRARIES.items()),
    ]  # fmt: skip
    folder.with_name("peers.md").write_text("\n".join(report) + "\n")
    print("\n".join(report))


if __name__ == "__main__":
    main()
