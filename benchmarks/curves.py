"""From run folders to what is committed of them: small curves, a table and a figure.

    mimex train FrankaReach --reward sparse --steps 4000000 --seed 0 --out runs/reach-0
    python -m benchmarks.curves NAME runs/reach-*     writes benchmarks/results/learning/NAME*

Each run becomes NAME/<folder>.csv with the metrics that tell whether it learned, about 200 rows.
Methods with several seeds are summed up by interquartile mean and 95 % interval over the last tenth
of their runs; where runs met rewards, how long they waited for the first is told.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mimex.commands.build import load_agent, make_env
from mimex.study.figures import STYLE, Panel, by_task, draw_panels, note_on, save
from mimex.study.groups import Group, bounds, final_scores, group_runs
from mimex.study.panels import draw_curves, print_styles, title
from mimex.study.runs import Run, find_runs
from mimex.study.statistics import interval
from mimex.study.survival import first_rewards
from mimex.train.evaluate import evaluate, wilson

RESULTS = Path(__file__).parent / "results" / "learning"
COLUMNS = (
    "step", "eval/success", "eval/return", "train/success", "train/return", "train/reached_lift",
    "train/reached_open", "train/reached_touch", "explore/first_reward", "explore/first_touch",
    "explore/first_lift", "explore/coverage", "bonus/mean", "bonus/share",
    "bonus/probe", "train/episode_steps", "ppo/std", "ppo/approx_kl", "ppo/clip_fraction", "ppo/lr",
    "ppo/explained_variance", "ppo/critic_share", "time/steps_per_second",
)  # fmt: skip
FRESH, FRESH_SEED = 256, 1_000_000  # episodes, and their seed, as of `mimex eval`
ROWS = 200  # a run, beside those of evaluations
PANELS = (
    "eval/success",
    "train/success",
    "eval/return",
    "train/return",
    "bonus/share",
    "explore/coverage",
)


def write_csv(run: Run, path: Path, rows: int = ROWS) -> None:
    """Some rows of a run: evenly spaced ones, and all those of evaluations."""
    count = len(run.columns["step"])
    evaluated = np.isfinite(run.columns.get("eval/return", np.full(count, np.nan)))
    kept = (np.arange(count) % max(1, count // rows) == 0) | evaluated
    names = [name for name in COLUMNS if name in run.columns]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in zip(*(run.columns[name][kept] for name in names), strict=True):
            writer.writerow(_text(cell) for cell in row)


def _text(cell: float) -> str:
    if np.isnan(cell):
        return ""
    return f"{cell:.0f}" if cell.is_integer() else f"{cell:.6g}"  # steps stay whole


def first_at(run: Run, level: float) -> str:
    """The first evaluation at a success: its step, and the minutes of training until there."""
    steps, values = run.curve("eval/success")
    reached = steps[values >= level]
    if not len(reached):
        return "never"
    told, speed = run.curve("time/steps_per_second")
    seconds = np.sum((np.diff(told, prepend=0) / speed)[told <= reached[0]])
    return f"{reached[0] / 1e6:.2f}M, {seconds / 60:.0f} min"


def fresh_success(run: Run) -> str:
    """Success of the last checkpoint on starts that no evaluation of the run has had."""
    config, agent, _ = load_agent(run.path, "latest")
    env = make_env(config, FRESH)
    result = evaluate(env, agent, seed=FRESH_SEED)
    env.close()
    assert result.successes is not None
    low, high = wilson(result.successes, result.episodes)
    return f" {result.score:.0%} ({low:.0%} to {high:.0%}) |"


def table(runs: Sequence[Run], fresh: bool = False) -> str:
    """Evaluations by success, and by return where a task knows no success.

    Args:
        runs: Of any tasks.
        fresh: Also evaluate each last checkpoint on starts of its own, which takes a while.
    """
    if any("eval/success" not in run.columns for run in runs):
        return _return_table(runs)
    more = f" {FRESH} fresh episodes (95 % interval) |" if fresh else ""
    lines = [
        "| run | steps | evaluated success: last | best | first at 50 % | first at 90 % "
        f"| steps/s (median) |{more}",
        "|---|---|---|---|---|---|---|" + "---|" * fresh,
    ]
    for run in runs:
        evaluated = run.curve("eval/success")[1]
        lines.append(
            f"| {run.name} | {run.columns['step'][-1]:,.0f} | {evaluated[-1]:.0%} "
            f"| {evaluated.max():.0%} | {first_at(run, 0.5)} | {first_at(run, 0.9)} "
            f"| {_speed(run):,.0f} |{fresh_success(run) if fresh else ''}"
        )
    return "\n".join(lines) + "\n"


def _return_table(runs: Sequence[Run]) -> str:
    lines = [
        "| run | frames | evaluated return: last | best | mean of all | frames/s (median) |",
        "|---|---|---|---|---|---|",
    ]
    for run in runs:
        evaluated = run.curve("eval/return")[1]
        lines.append(
            f"| {run.name} | {run.columns['step'][-1]:,.0f} | {evaluated[-1]:.0f} "
            f"| {evaluated.max():.0f} | {evaluated.mean():.0f} | {_speed(run):,.0f} |"
        )
    return "\n".join(lines) + "\n"


def _speed(run: Run) -> float:
    return float(np.median(run.curve("time/steps_per_second")[1]))


def summary(runs: Sequence[Run], metrics: Sequence[str]) -> str:
    """What each method came to, where all have several seeds; else nothing."""
    groups = grouped(runs)
    if any(len(group.runs) < 2 for group in groups):
        return ""
    lines = ["| task | method | " + " | ".join(title(name) for name in metrics) + " |"]
    lines.append("|---|---|" + "---|" * len(metrics))
    scores = {metric: final_scores(groups, metric) for metric in metrics}
    for group in groups:
        cells = []
        for metric in metrics:
            found = scores[metric].get(group.label, {}).get(group.task)
            cells.append("" if found is None else _with_interval(metric, found))
        lines.append(f"| {group.task} | {group.label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\n"


def _with_interval(metric: str, scores: NDArray[np.float64]) -> str:
    if len(scores) < 2:
        return _number(metric, float(scores[0]))
    estimate = interval({"": scores})
    low, high = np.clip((estimate.low, estimate.high), *bounds(metric))
    ends = f"{_number(metric, low)} to {_number(metric, high)}"
    return f"{_number(metric, estimate.value)} ({ends})"


def _number(metric: str, value: float) -> str:
    return f"{value:.1%}" if np.isfinite(bounds(metric)[1]) else f"{value:.3g}"


def waits(groups: Sequence[Group]) -> str:
    """Steps to the first reward, where any run met one; else nothing."""
    rows = first_rewards(groups)
    if not rows:
        return ""
    lines = [
        "| task | method | runs that met a reward | median steps to the first | p, against none |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        median = "not reached" if row.median is None else f"{row.median:,.0f}"
        p = "" if row.p is None else f"{row.p:.2g}"
        task = row.task or "all tasks together"
        lines.append(f"| {task} | {row.method} | {row.found} of {row.runs} | {median} | {p} |")
    return "\n".join(lines) + "\n\n"


def commands(runs: Sequence[Run]) -> str:
    """The commands as anybody would type them: no paths of the machine they ran on."""
    lines = []
    for run in runs:
        line = re.sub(r"^\S+", "mimex", run.about["command"])
        lines.append(re.sub(r"--out \S*?([^/\s]+)(?=\s|$)", r"--out runs/\1", line))
    return "\n".join(["Commands:", "", "```sh", *lines, "```", ""])


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Runs by method: of a study by the names it gave them, TASK-METHOD-SEED; else by settings."""
    names = {
        run.name: run.name.removeprefix(f"{_in_names(run.task)}-").rpartition("-") for run in runs
    }
    if all(seed == str(run.seed) for run in runs for _, _, seed in [names[run.name]]):
        return group_runs(runs, {name: method for name, (method, _, _) in names.items()})
    return group_runs(runs)


def _in_names(task: str) -> str:
    """What a study calls a task in the names of its runs."""
    return task.rpartition("/")[2].replace(":", "-")


def panels(runs: Sequence[Run]) -> list[str]:
    paid = any(run.config["bonus"] != "none" for run in runs)
    told = {name for run in runs for name in run.columns}
    success = "eval/success" in told
    return [
        metric
        for metric in PANELS
        if metric in told
        and (paid or not metric.startswith("bonus/"))
        and not (success and metric == "eval/return")
    ]


def metrics_figure(groups: Sequence[Group], metrics: Sequence[str]) -> Figure:
    """One row a task, one panel a metric; metrics that no run of a task reported are left out."""
    look = print_styles(list(dict.fromkeys(group.label for group in groups)))
    rows: list[list[Panel | None]] = []
    for task, chosen in by_task(groups).items():
        told = [metric for metric in metrics if _reported(chosen, metric)]
        rows.append(
            [
                (task, partial(draw_curves, groups=chosen, metric=metric, look=look))
                for metric in told
            ]
        )
    columns = max(map(len, rows))
    filled = [panel for row in rows for panel in row + [None] * (columns - len(row))]
    return draw_panels(filled, look, note_on(groups), columns=columns)


def _reported(groups: Sequence[Group], metric: str) -> bool:
    return any(len(run.curve(metric)[0]) for group in groups for run in group.runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, or folders of them")
    parser.add_argument(
        "--fresh", action="store_true", help=f"evaluate each run on {FRESH} starts of its own"
    )
    parser.add_argument("--panels", nargs="+", help="metrics to draw and to sum up")
    parser.add_argument("--rows", type=int, default=ROWS, help="of a curve, beside evaluations")
    args = parser.parse_args()
    runs = find_runs(args.runs)
    shown = args.panels or panels(runs)
    for run in runs:
        write_csv(run, RESULTS / args.name / f"{run.name}.csv", args.rows)
    told = f"{summary(runs, shown)}{waits(grouped(runs))}{table(runs, args.fresh)}"
    text = f"{told}\n{commands(runs)}"
    (RESULTS / f"{args.name}.md").write_text(
        f"# {args.name}\n\n![curves]({args.name}.png)\n\n{text}"
    )
    with matplotlib.rc_context(STYLE):
        save(metrics_figure(grouped(runs), shown), RESULTS / args.name, ("png",))
    print(text)


if __name__ == "__main__":
    main()
