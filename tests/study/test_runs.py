"""Run folders are found, loaded, and put into groups that differ in the seed alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mimex.study.runs import Run, common_grid, curves, find_runs, group_runs, load_run

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


def test_a_run_is_what_its_folder_says(tmp_path):
    path = write_run(tmp_path / "a", seed=3)
    (path / "about.json").write_text('{"command": "mimex train"}')
    run = load_run(path)
    assert (run.name, run.task, run.seed, run.finished) == ("a", "FrankaReach", 3, True)
    assert run.about == {"command": "mimex train"}
    steps, values = run.curve("eval/success")
    assert (steps.tolist(), values.tolist()) == ([10, 20, 30], [0.1, 0.2, 0.3])
    assert [len(x) for x in run.curve("never/reported")] == [0, 0]


def test_a_curve_leaves_out_rows_without_the_metric(tmp_path):
    path = write_run(tmp_path / "a")
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "train/return": 7.0}\n{"step": 50, "eval/success": null}\n')
    run = load_run(path)
    assert run.curve("eval/success")[0].tolist() == [10, 20, 30]
    assert run.curve("train/return")[0].tolist() == [40]


def test_a_run_short_of_its_budget_is_not_finished(tmp_path):
    assert not load_run(write_run(tmp_path / "a", steps=31)).finished
    assert not load_run(write_run(tmp_path / "b", rows=())).finished


def test_runs_are_found_at_and_below_paths_each_once(tmp_path):
    for name in ("study/runs/b-1", "study/runs/a-0", "alone"):
        write_run(tmp_path / name)
    (tmp_path / "study" / "logs").mkdir()
    (tmp_path / "study" / "runs" / "again").symlink_to(tmp_path / "alone")
    (tmp_path / "study" / "circle").symlink_to(tmp_path / "study")
    runs = find_runs([tmp_path / "alone", str(tmp_path / "study"), tmp_path])
    assert [run.name for run in runs] == ["alone", "a-0", "b-1"]


def test_a_path_without_runs_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no run folder"):
        find_runs([tmp_path])
    with pytest.raises(FileNotFoundError, match="does not exist"):
        find_runs([tmp_path / "missing"])
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        load_run(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_damaged_config_is_named(tmp_path, text):
    path = write_run(tmp_path / "a")
    (path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json"):
        load_run(path)


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
