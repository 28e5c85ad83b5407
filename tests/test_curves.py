"""What benchmarks draw of runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.curves import metrics_figure

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
