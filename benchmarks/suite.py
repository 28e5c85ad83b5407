"""The suite's tables and figure, and the paper's ablations, from committed curves alone.

    mimex study run suite --jobs 2 --threads 1               six hours of a core; continues
    python -m benchmarks.curves suite studies/suite-cpu      writes learning/suite/*.csv
    python -m benchmarks.suite                               writes results/suite.md and .png

The same with `claims` in place of `suite` for the ablations, results/claims.md, and with
`baselines-dmc` for results/swingup.md, whose curves are in learning/swingup-state and -small.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np

from mimex.study.figures import STYLE, by_task, draw_panels, note_on, save
from mimex.study.groups import Group, TaskScores, final_scores, group_runs
from mimex.study.panels import draw_curves, print_styles
from mimex.study.plan_file import find_plan
from mimex.study.runs import Run
from mimex.study.statistics import area_under_curve, interval, probability_of_improvement
from mimex.study.survival import METRIC, log_rank, median, waits_of

RESULTS = Path(__file__).parent / "results"
CURVES = RESULTS / "learning"

SUCCESS, RETURN = "eval/success", "eval/return"
GOOD = 400
"""A return of sparse cartpole swingup that is most of the way: the pole stays up."""
SHOWN = ("none", "constant", "rnd", "mimex", "count", "pseudocount")
"""Methods of the figure."""
SOLVED = 0.5
"""Of the last evaluation's episodes, from which a run counts as one that solved its task."""
GATED = (
    "gym/mimex/DeepSea-v0", "gym/mimex/OrderedButtons-v0", "FrankaReachUp", "FrankaReachRight",
)  # fmt: skip
"""Tasks of the suite that pass the gate (docs/results.md): finding is what is hard there."""


def read_curves(plan: str, folder: str | None = None, seeds: int | None = None) -> list[Group]:
    """The committed curves of a plan's runs, in groups, in the order of its tasks and methods.

    Args:
        plan: Its name.
        folder: Where its curves are, if not in one of its name.
        seeds: How many, if not as many as the plan says.
    """
    runs, labels = [], {}
    for planned in find_plan(plan).runs("cpu", seeds=seeds):
        path = CURVES / (folder or plan) / f"{planned.name}.csv"
        if path.exists():
            config = {"task": planned.task, "seed": planned.seed, "steps": 0}
            runs.append(Run(planned.name, path, config, {}, read_csv(path)))
            labels[planned.name] = " ".join(planned.labels.values())
    return group_runs(runs, labels)


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """The columns of a curve; what a row lacks is no number."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}


def areas(groups: Sequence[Group], metric: str = SUCCESS) -> dict[str, TaskScores]:
    """By method, then by task: the mean height of each run's curve, so that early counts more."""
    return final_scores(groups, metric, area_under_curve)


def solved(group: Group) -> int:
    """Runs whose last evaluation succeeded in half of the episodes or more."""
    return sum(run.curve(SUCCESS)[1][-1] >= SOLVED for run in group.runs)


def percent(scores: np.ndarray) -> str:
    """An interquartile mean with its interval, in per cent."""
    if len(scores) < 2:
        return f"{scores[0]:.0%}"
    found = interval({"": scores})
    low, high = np.clip([found.low, found.high], 0, 1)
    return f"{100 * found.value:.0f} % ({100 * low:.0f} to {100 * high:.0f})"


def cell(group: Group, scores: Mapping[str, TaskScores]) -> str:
    """What a method came to on a task, in a cell of a table."""
    wait = median(waits_of(group.runs))
    first = "never" if wait is None else f"{wait / 1000:,.0f}k"
    final = percent(np.asarray(scores[group.label][group.task]))
    return f"{solved(group)} of {len(group.runs)}; {final}; {first}"


def suite_table(groups: Sequence[Group]) -> str:
    """Methods by tasks: runs solved, success over the last tenth, median step of first reward."""
    scores = final_scores(groups, SUCCESS)
    tasks = list(by_task(groups))
    lines = ["| | " + " | ".join(task.rpartition("/")[2] for task in tasks) + " |"]
    lines.append("|---|" + "---|" * len(tasks))
    for label in dict.fromkeys(group.label for group in groups):
        found = {group.task: group for group in groups if group.label == label}
        cells = [cell(found[task], scores) if task in found else "" for task in tasks]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def improvement_table(
    groups: Sequence[Group], ours: str, metric: str = SUCCESS, gated: Sequence[str] = ()
) -> str:
    """How probably a run of ours has the larger area, by task and over all that both have.

    Of those with two runs or more. If there are gated tasks, over these, too.
    """
    scores = {
        label: {task: x for task, x in by.items() if len(np.asarray(x)) > 1}
        for label, by in areas(groups, metric).items()
    }
    tasks = [task for task in by_task(groups) if task in scores[ours]]
    over = [*(task.rpartition("/")[2] for task in tasks), *(["gated"] if gated else []), "all"]
    lines = ["| against | " + " | ".join(over) + " |", "|---|" + "---|" * len(over)]
    for label, theirs in scores.items():
        shared = [task for task in tasks if task in theirs]
        if label == ours or not shared:
            continue
        cells = []
        for chosen in [*([task] for task in tasks), *([gated] if gated else []), shared]:
            if not set(chosen) <= set(shared):
                cells.append("")
                continue
            found = probability_of_improvement(
                {task: scores[ours][task] for task in chosen}, {t: theirs[t] for t in chosen}
            )
            cells.append(f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})")
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def first_tests(groups: Sequence[Group], ours: str, metric: str = METRIC) -> str:
    """Log-rank tests of the steps to a first reward, or touch: ours against each, by task."""
    tasks = by_task(groups)
    labels = [label for label in dict.fromkeys(g.label for g in groups) if label != ours]
    lines = ["| against | " + " | ".join(t.rpartition("/")[2] for t in tasks) + " |"]
    lines.append("|---|" + "---|" * len(tasks))
    for label in labels:
        cells = []
        for of_task in tasks.values():
            by = {group.label: waits_of(group.runs, metric) for group in of_task}
            if not {ours, label} <= by.keys():
                cells.append("")
                continue
            found = log_rank({"": by[ours]}, {"": by[label]})
            ahead = "earlier" if found.statistic > 0 else "later"
            cells.append(f"{ahead}, p = {found.p:.2g}")
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def write_suite() -> str:
    """The suite's page and figure."""
    groups = read_curves("suite")
    shown = [group for group in groups if group.label in SHOWN]
    look = print_styles(list(dict.fromkeys(group.label for group in shown)))
    panels = [
        (task.rpartition("/")[2], partial(draw_curves, groups=some, metric=SUCCESS, look=look))
        for task, some in by_task(shown).items()
    ]
    with matplotlib.rc_context(STYLE):
        save(draw_panels(panels, look, note_on(shown), columns=3), RESULTS / "suite", ("png",))
    return f"""# The suite

    python -m benchmarks.suite

Runs that solve their task (half of the last evaluation's episodes); success over the last tenth of
the steps, as interquartile mean with its 95 % interval; median steps to the first reward.

![curves](suite.png)

{suite_table(groups)}
The probability that a run of MIMEx has the larger area under its curve of success, ties counting
half, with its 95 % interval, by task, over the four that pass the gate, and over all:

{improvement_table(groups, "mimex", gated=GATED)}
Steps to the first reward, log-rank test: MIMEx meets it earlier or later than

{first_tests(groups, "mimex")}"""


def write_claims() -> str:
    """The page of the paper's ablations."""
    groups = read_curves("claims")
    return f"""# The paper's ablations

    python -m benchmarks.suite

MIMEx as in the plan `claims`; cells as in [the suite](suite.md).

{suite_table(groups)}
The probability that a run of "base" has the larger area under its curve of success, ties counting
half, with its 95 % interval (below 0.5 the other one is better):

{improvement_table(groups, "base")}"""


def returns_table(groups: Sequence[Group]) -> str:
    """By method: evaluated return at the end and on average, and when it was first good."""
    final, mean = final_scores(groups, RETURN), areas(groups, RETURN)
    lines = [
        "| | runs | return over the last tenth | mean of the curve | "
        f"first at {GOOD} (thousand frames) | mean of each run's curve |",
        "|---|---|---|---|---|---|",
    ]
    for group in groups:
        ends, means = (np.asarray(by[group.label][group.task]) for by in (final, mean))
        firsts = []
        for run in group.runs:
            steps, values = run.curve(RETURN)
            good = steps[values >= GOOD]
            firsts.append(f"{good[0] / 1000:.0f}" if len(good) else "never")
        lines.append(
            f"| {group.label} | {len(group.runs)} | {spread(ends)} | {spread(means)} "
            f"| {', '.join(firsts)} | {', '.join(f'{value:.0f}' for value in means)} |"
        )
    return "\n".join(lines) + "\n"


def spread(scores: np.ndarray) -> str:
    """An interquartile mean of returns, which are not below 0 here, with its interval."""
    if len(scores) < 2:
        return f"{scores[0]:.0f}"
    found = interval({"": scores})
    return f"{found.value:.0f} ({max(found.low, 0):.0f} to {found.high:.0f})"


def write_swingup() -> str:
    """The page of sparse cartpole swingup, by DrQ-v2 from state and from small pictures."""
    parts = []
    for folder, title in (("swingup-state", "From state"), ("swingup-small", "From pictures")):
        groups = read_curves("baselines-dmc", folder, seeds=10)
        parts.append(f"## {title}\n\n{returns_table(groups)}")
        if all(len(group.runs) > 1 for group in groups):
            parts.append(
                "How probably a run of MIMEx has the larger mean, with its 95 % interval:\n\n"
                + improvement_table(groups, "mimex", RETURN)
                + "\nFirst reward, log-rank test: MIMEx meets it earlier or later than\n\n"
                + first_tests(groups, "mimex")
            )
    return """# dmc/cartpole_swingup_sparse

    python -m benchmarks.suite

DrQ-v2. Evaluated return of ten episodes; interquartile means with 95 % intervals.

""" + "\n".join(parts)


def main() -> None:
    pages = {"suite": write_suite, "claims": write_claims, "swingup": write_swingup}
    for name, write in pages.items():
        text = write()
        (RESULTS / f"{name}.md").write_text(text)
        print(text)


if __name__ == "__main__":
    main()
