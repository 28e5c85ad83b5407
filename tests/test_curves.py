"""What benchmarks draw of runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.curves import metrics_figure, waits

from mimex.study.groups import group_runs
from mimex.study.runs import Run


def test_each_task_has_panels_of_what_its_runs_reported():
    def run(task, **metrics):
        columns = {"step": np.array([1.0, 2.0])}
        columns |= {name: np.array([0.0, value]) for name, value in metrics.items()}
        config = {"task": task, "bonus": "none", "seed": 0, "steps": 2}
        return Run(task, Path(task), config, {}, columns)

    lifted = run("FrankaPick", **{"train/reached_lift": 0.3, "train/return": 1.0})
    opened = run("FrankaCabinet", **{"train/reached_open": 0.7})
    shown = ["train/reached_lift", "train/reached_open", "train/return"]
    figure = metrics_figure(group_runs([lifted, opened]), shown)
    panels = [(axes.get_title(), axes.get_ylabel()) for axes in figure.axes]
    assert panels == [
        ("FrankaPick", "episodes that lift it"),
        ("FrankaPick", "return in training"),
        ("FrankaCabinet", "episodes that open it"),
    ]


def test_how_long_runs_waited_is_a_table_where_any_met_a_reward():
    def run(bonus, seed, first):
        columns = {"step": np.array([2000.0])}
        columns |= {"explore/first_reward": np.array([first])} if first else {}
        config = {"task": "FrankaPick", "bonus": bonus, "seed": seed, "steps": 2}
        return Run(f"{bonus}-{seed}", Path("r"), config, {}, columns)

    never = [run("none", seed, None) for seed in range(2)]
    assert waits(group_runs(never)) == ""
    found = [run("mimex", seed, 1500.0) for seed in range(2)]
    assert waits(group_runs(never + found)).splitlines()[2:] == [
        "| FrankaPick | none | 0 of 2 | not reached |  |",
        "| FrankaPick | mimex | 2 of 2 | 1,500 | 0.33 |",
        "",
    ]
