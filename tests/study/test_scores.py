"""Runs are compared by the same number, at the same budget, on the same tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mimex.study.runs import Run, group_runs
from mimex.study.scores import bounds, comparable, final_scores, score_metric
from mimex.study.statistics import area_under_curve


def run_of(values, *, step=10, metric="eval/success", **settings) -> Run:
    config = {"task": "FrankaReach", "bonus": "none", "seed": 0, "steps": step * len(values)}
    steps = step * np.arange(1.0, len(values) + 1)
    columns = {"step": steps, metric: np.array(values, float)}
    return Run("x", Path("x"), config | settings, {}, columns)


def test_success_is_what_runs_are_judged_by_where_it_is_reported():
    evaluated, not_yet = run_of([0.5]), run_of([7.0], metric="train/return")
    assert score_metric([not_yet, evaluated]) == "eval/success"
    assert score_metric([not_yet]) == "train/return"
    with pytest.raises(ValueError, match="nothing to compare"):
        score_metric([run_of([1.0], metric="ppo/std")])


def test_scores_are_by_method_and_task():
    runs = [
        run_of([0.0, 1.0], seed=0),
        run_of([0.0, 0.5], seed=1),
        run_of([0.0, 0.2], bonus="rnd"),
        run_of([0.0, 0.8], task="FrankaPick"),
    ]
    scores = final_scores(group_runs(runs), "eval/success")
    assert {
        label: {task: x.tolist() for task, x in by.items()} for label, by in scores.items()
    } == {
        "none": {"FrankaReach": [1.0, 0.5], "FrankaPick": [0.8]},
        "rnd": {"FrankaReach": [0.2]},
    }


def test_unfinished_runs_have_no_score():
    runs = [run_of([0.0, 1.0], seed=0), run_of([0.1], seed=1, steps=20)]
    assert final_scores(group_runs(runs), "eval/success")["none"]["FrankaReach"].tolist() == [1.0]


def test_unequal_budgets_are_compared_at_the_smaller():
    runs = [run_of([0.0, 0.2, 0.4, 0.9]), run_of([0.1, 0.3], bonus="rnd")]
    scores = final_scores(group_runs(runs), "eval/success")
    assert scores["none"]["FrankaReach"] == pytest.approx([0.2])
    assert scores["rnd"]["FrankaReach"] == pytest.approx([0.3])
    areas = final_scores(group_runs(runs), "eval/success", area_under_curve)
    assert areas["none"]["FrankaReach"] == pytest.approx([0.1])


def test_only_tasks_of_all_methods_are_comparable():
    a, b, c = np.array([1.0]), np.array([2.0]), np.array([3.0])
    assert comparable({"none": {"x": a, "y": b}, "rnd": {"y": c}}) == {
        "none": {"y": b},
        "rnd": {"y": c},
    }
    assert comparable({"none": {"x": a}, "rnd": {"y": c}}) == {}


def test_rates_are_bounded_and_returns_are_not():
    assert bounds("eval/success") == bounds("train/reached_lift") == (0.0, 1.0)
    assert bounds("eval/return") == (-np.inf, np.inf)
