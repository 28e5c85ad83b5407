"""The difficulty map shows every task and method, and takes nothing unreported for a failure."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mimex.study.difficulty import difficulty_figure
from mimex.study.groups import Group
from mimex.study.runs import Run


def group(label, success, **metrics):
    columns = {"step": np.array([5e4, 1e5]), "eval/success": np.array([0.0, success])}
    columns |= {name: np.array([np.nan, value]) for name, value in metrics.items()}
    return Group("any/task", label, (Run("x", Path("x"), {"steps": 100_000}, {}, columns),))


def test_the_figure_writes_every_number_into_its_cell():
    groups = [
        group(
            "dense",
            0.75,
            **{
                "train/reached_lift": 0.9,
                "explore/first_reward": 512.0,
                "train/episode_steps": 400.0,
            },
        ),
        group("sparse", 0.0, **{"train/reached_lift": 0.0, "train/episode_steps": 15.0}),
    ]
    figure = difficulty_figure(groups)
    words = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert words == [["75%", "0%"], ["90%", "0%"], ["512", "never"], ["400", "15"]]
    lightness = figure.axes[3].images[0].get_array()
    assert lightness.tolist() == [[1.0, 15 / 400]], "as a share of the task's longest"
    names = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert names == ["dense", "sparse"]


def test_a_task_that_reports_no_milestones_has_its_success_alone():
    figure = difficulty_figure([group("none", 1.0)])
    assert [len(axes.texts) for axes in figure.axes] == [1, 0, 0, 0]


def test_runs_that_were_not_evaluated_leave_their_cell_empty():
    columns = {"step": np.array([1.0]), "eval/return": np.array([1.0])}
    figure = difficulty_figure([Group("t", "none", (Run("x", Path("x"), {}, {}, columns),))])
    assert [len(axes.texts) for axes in figure.axes] == [0, 0, 0, 0]
