"""Runs are put together by what they differ in, and compared at the same budget and tasks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mimex.bonus import BONUSES
from mimex.study.groups import (
    bounds,
    common_grid,
    comparable,
    curves,
    final_scores,
    group_runs,
    method_labels,
    natural,
    score_metric,
)
from mimex.study.runs import Run, find_runs
from mimex.study.statistics import area_under_curve

CONFIG = {"task": "FrankaReach", "reward": "sparse", "bonus": "none", "seed": 0, "steps": 30}


def write_run(path: Path, rows=((10, 0.1), (20, 0.2), (30, 0.3)), **settings) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(CONFIG | settings))
    text = "".join(json.dumps({"step": step, "eval/success": y}) + "\n" for step, y in rows)
    (path / "metrics.jsonl").write_text(text)
    return path


def run_of(rows, **settings) -> Run:
    steps, values = np.array(rows, float).reshape(-1, 2).T
    return Run("x", Path("x"), CONFIG | settings, {}, {"step": steps, "eval/success": values})


def test_groups_differ_in_the_seed_alone(tmp_path):
    for bonus in ("rnd", "none"):
        for seed in (10, 9):
            write_run(tmp_path / f"{bonus}-{seed}", bonus=bonus, seed=seed)
    groups = group_runs(find_runs([tmp_path]))
    assert [(g.task, g.label) for g in groups] == [("FrankaReach", "none"), ("FrankaReach", "rnd")]
    assert [[run.seed for run in group.runs] for group in groups] == [[9, 10], [9, 10]]


def test_a_study_names_and_orders_methods(tmp_path):
    for name in ("b", "a", "c"):
        write_run(tmp_path / name, bonus=name)
    groups = group_runs(find_runs([tmp_path]), {"b": "T = 2", "a": "T = 1", "missing": "T = 3"})
    assert [(group.label, group.runs[0].name) for group in groups] == [
        ("T = 2", "b"),
        ("T = 1", "a"),
    ]


def test_the_same_run_twice_is_refused(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "copy-of-a")
    with pytest.raises(ValueError, match="same run"):
        group_runs(find_runs([tmp_path]))


def test_curves_are_linear_between_reports_on_the_steps_that_all_runs_cover():
    rows = [[(0, 0.0), (10, 1.0), (40, 4.0)], [(5, 50.0), (25, 250.0), (30, 300.0)]]
    (group,) = group_runs([run_of(row, seed=seed) for seed, row in enumerate(rows)])
    grid = common_grid(group.runs, "eval/success", points=6)
    assert grid.tolist() == [5, 10, 15, 20, 25, 30]
    np.testing.assert_allclose(
        curves(group, "eval/success", grid), [grid / 10, grid * 10], rtol=1e-12
    )


def test_reports_at_the_same_steps_are_taken_as_they_are():
    rows = [[(10, 1.0), (20, 5.0), (70, 2.0)], [(10, 3.0), (20, 4.0), (70, 0.0)]]
    (group,) = group_runs([run_of(row, seed=seed) for seed, row in enumerate(rows)])
    grid = common_grid(group.runs, "eval/success")
    assert grid.tolist() == [10, 20, 70]
    assert curves(group, "eval/success", grid).tolist() == [[1.0, 5.0, 2.0], [3.0, 4.0, 0.0]]
    assert common_grid(group.runs, "eval/success", points=2).tolist() == [10, 70]


def test_runs_without_the_metric_have_no_curve():
    (group,) = group_runs([run_of([(10, 1.0), (20, 2.0)]), run_of([], seed=1)])
    grid = common_grid(group.runs, "eval/success")
    assert curves(group, "eval/success", grid).tolist() == [[1.0, 2.0]]
    assert len(common_grid(group.runs, "train/return")) == 0
    assert curves(group, "train/return", np.empty(0)).shape == (0, 0)


def config(task="FrankaReach", **settings):
    base = {"task": task, "reward": "sparse", "bonus": "none", "seed": 0, "steps": 100}
    base |= {"mimex": {"length": 5, "size": {"width": 128}}, "rnd": {"lr": 1e-3}}
    return base | {"scale": {"beta": 0.05}, "out": "somewhere"} | settings


def test_the_bonus_alone_names_methods_that_differ_in_it():
    configs = [config(bonus=bonus, seed=seed) for bonus in ("none", "mimex") for seed in (0, 1)]
    assert method_labels(configs) == ["none", "none", "mimex", "mimex"]


def test_what_follows_from_the_bonus_is_not_repeated():
    configs = [config(bonus="none"), config(bonus="mimex", scale={"beta": 0.005})]
    assert method_labels(configs) == ["none", "mimex"]


def test_settings_of_a_bonus_that_is_not_used_make_no_method():
    configs = [config(seed=0), config(seed=1, rnd={"lr": 1e-4}, scale={"beta": 0.5})]
    assert method_labels(configs) == ["none", "none"]


def test_nested_settings_are_reported_by_their_last_name():
    configs = [config(bonus="mimex", mimex={"length": n, "mask_ratio": 0.7}) for n in (2, 5)]
    assert method_labels(configs) == ["length 2", "length 5"]


def test_settings_that_differ_between_tasks_only_are_the_tasks_own():
    configs = [config("FrankaReach", steps=100), config("FrankaPick", steps=900)]
    assert method_labels(configs) == ["none", "none"]


def test_several_differences_are_reported_together():
    configs = [
        config(reward=reward, bonus=bonus)
        for reward, bonus in (("dense", "none"), ("sparse", "none"), ("sparse", "mimex"))
    ]
    assert method_labels(configs) == ["none, dense", "none, sparse", "mimex, sparse"]


def test_labels_are_sorted_with_no_bonus_first_and_numbers_by_size():
    labels = ["mimex", "length 10", "none, sparse", "length 2", "ratio 0.7", "ratio 0.25", "none"]
    assert sorted(labels, key=natural) == [
        "none", "none, sparse", "length 2", "length 10", "mimex", "ratio 0.25", "ratio 0.7",
    ]  # fmt: skip


def test_settings_of_an_agent_that_is_not_used_make_no_method():
    configs = [config(agent="ppo", drqv2={"lr": lr}, ppo={"lr": 1}) for lr in (1, 2)]
    assert method_labels(configs) == ["none", "none"]
    configs = [config(agent="ppo", ppo={"lr": lr}) for lr in (1, 2)]
    assert method_labels(configs) == ["lr 1", "lr 2"]


@pytest.mark.parametrize("bonus", BONUSES)
def test_every_bonus_that_there_is_counts_only_where_it_is_used(bonus):
    configs = [config(bonus="some other", **{bonus: {"width": width}}) for width in (1, 2)]
    assert method_labels(configs) == ["some other", "some other"]
    configs = [config(bonus=bonus, **{bonus: {"width": width}}) for width in (1, 2)]
    assert method_labels(configs) == ["width 1", "width 2"]


def scored(values, *, step=10, metric="eval/success", **settings) -> Run:
    config = {"task": "FrankaReach", "bonus": "none", "seed": 0, "steps": step * len(values)}
    steps = step * np.arange(1.0, len(values) + 1)
    columns = {"step": steps, metric: np.array(values, float)}
    return Run("x", Path("x"), config | settings, {}, columns)


def test_success_is_what_runs_are_judged_by_where_it_is_reported():
    evaluated, not_yet = scored([0.5]), scored([7.0], metric="train/return")
    assert score_metric([not_yet, evaluated]) == "eval/success"
    assert score_metric([not_yet]) == "train/return"
    with pytest.raises(ValueError, match="nothing to compare"):
        score_metric([scored([1.0], metric="ppo/std")])


def test_scores_are_by_method_and_task():
    runs = [
        scored([0.0, 1.0], seed=0),
        scored([0.0, 0.5], seed=1),
        scored([0.0, 0.2], bonus="rnd"),
        scored([0.0, 0.8], task="FrankaPick"),
    ]
    scores = final_scores(group_runs(runs), "eval/success")
    assert {
        label: {task: x.tolist() for task, x in by.items()} for label, by in scores.items()
    } == {
        "none": {"FrankaReach": [1.0, 0.5], "FrankaPick": [0.8]},
        "rnd": {"FrankaReach": [0.2]},
    }


def test_unfinished_runs_have_no_score():
    runs = [scored([0.0, 1.0], seed=0), scored([0.1], seed=1, steps=20)]
    assert final_scores(group_runs(runs), "eval/success")["none"]["FrankaReach"].tolist() == [1.0]


def test_unequal_budgets_are_compared_at_the_smaller():
    runs = [scored([0.0, 0.2, 0.4, 0.9]), scored([0.1, 0.3], bonus="rnd")]
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
