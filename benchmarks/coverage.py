"""Where a bonus leads if the task pays nothing: space visited, first touch, first lift.

    mimex study run coverage --jobs 2 --threads 1               continues
    python -m benchmarks.curves coverage studies/coverage-cpu   writes learning/coverage/*.csv
    python -m benchmarks.coverage                               writes results/coverage.md, .png

FrankaPick without any reward, actions free, 500,000 steps. The share of the grid around the arm
that the hand has been to at the end, as interquartile mean with its 95 % interval; the median step
of the first touch of the cube and of its first lift, with the runs that had one; episodes of the
last tenth of the steps that move the cube, and their length, as means.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import matplotlib
import numpy as np

from benchmarks.suite import RESULTS, first_tests, improvement_table, percent, read_curves
from mimex.study.figures import STYLE, draw_panels, note_on, save
from mimex.study.groups import Group, final_scores
from mimex.study.panels import draw_curves, print_styles, title
from mimex.study.survival import median, waits_of

COVERAGE = "explore/coverage"
TOUCH, LIFT = "explore/first_touch", "explore/first_lift"
SHOWN = (COVERAGE, "train/reached_touch", "train/episode_steps")


def wait(group: Group, metric: str) -> str:
    """The median step of something, and the runs in which it was."""
    waits = waits_of(group.runs, metric)
    step = median(waits)
    when = "never" if step is None else f"{step / 1000:,.0f}k"
    return f"{when}; {waits.met.sum()} of {len(waits.met)}"


def table(groups: Sequence[Group]) -> str:
    """A row for each method."""
    by_metric = {metric: final_scores(groups, metric) for metric in SHOWN}
    lines = [
        "| | grid visited | first touch | first lift | episodes that move it | their steps |",
        "|---|---|---|---|---|---|",
    ]
    for group in groups:
        visited, moved, steps = (
            np.asarray(by_metric[metric][group.label][group.task]) for metric in SHOWN
        )
        lines.append(
            f"| {group.label} | {percent(visited)} | {wait(group, TOUCH)} | {wait(group, LIFT)} "
            f"| {np.mean(moved):.1%} | {np.mean(steps):.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    groups = read_curves("coverage")
    look = print_styles([group.label for group in groups])
    panels = [
        (title(metric), partial(draw_curves, groups=groups, metric=metric, look=look))
        for metric in SHOWN
    ]
    with matplotlib.rc_context(STYLE):
        save(draw_panels(panels, look, note_on(groups), columns=3), RESULTS / "coverage", ("png",))
    head, _, about = (__doc__ or "").partition("\n")
    text = f"""# {head}
{about}
![curves](coverage.png)

{table(groups)}
The probability that a run of MIMEx has visited more over the run (area under the curve), ties
counting half, with its 95 % interval:

{improvement_table(groups, "mimex", COVERAGE)}
First touch, log-rank test: MIMEx's is earlier or later than that of

{first_tests(groups, "mimex", TOUCH)}"""
    (RESULTS / "coverage.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
