import json

import pytest

from mimex.study.groups import group_runs
from mimex.study.report.tables import (
    aggregate,
    compared_settings,
    overview,
    versions,
    warnings,
)
from mimex.study.runs import find_runs
from mimex.study.statistics import interval


def groups(tmp_path):
    return group_runs(find_runs([tmp_path / "runs"]))


def test_a_row_has_the_final_scores_of_finished_runs(tmp_path, write_run):
    for seed, height in enumerate((0.2, 0.4, 0.9)):
        write_run(
            f"r{seed}", seed=seed, metrics={"eval/success": lambda x, h=height: h * (x > 0.9)}
        )
    write_run("r3", seed=3, done=0.5)
    [row] = overview(groups(tmp_path), "eval/success")
    assert (row["seeds"], row["finished"]) == (4, 3)
    assert row["scores"] == pytest.approx([0.2 * 2 / 3, 0.4 * 2 / 3, 0.9 * 2 / 3])
    assert row["final"]["value"] == pytest.approx(1 / 3)
    expected = interval({"": row["scores"]}, "mean")
    assert row["final"]["low"] == pytest.approx(max(expected.low, 0))
    assert row["final"]["high"] == pytest.approx(min(expected.high, 1))
    assert row["steps"] == [500, 1000]
    assert row["explore/coverage"] is None


def test_one_run_has_no_interval_and_none_no_value(tmp_path, write_run):
    write_run("r0")
    write_run("r1", task="KukaReach", done=0.5)
    rows = {row["task"]: row for row in overview(groups(tmp_path), "eval/success")}
    assert set(rows["FrankaReach"]["final"]) == {"value"}
    assert rows["KukaReach"]["final"] is None


def test_methods_are_compared_on_the_tasks_that_all_have_finished(tmp_path, write_run):
    for task in ("FrankaReach", "KukaReach", "KukaPick"):
        for bonus, height in (("none", 0.2), ("mimex", 0.8)):
            for seed in range(2):
                done = 0.5 if (task, bonus) == ("KukaPick", "none") else 1.0
                flat = {"eval/success": lambda x, h=height + 0.01 * seed: h}
                name = f"{task}{bonus}{seed}"
                write_run(name, task=task, bonus=bonus, seed=seed, done=done, metrics=flat)
    found = aggregate(groups(tmp_path), "eval/success")
    assert sorted(found["tasks"]) == ["FrankaReach", "KukaReach"]
    rows = {row["method"]: row for row in found["rows"]}
    assert rows["mimex"]["iqm"]["value"] == pytest.approx(0.805)
    assert rows["mimex"]["improvement"]["value"] == 1.0
    assert rows["none"]["improvement"] is None


def test_one_task_or_one_seed_is_not_aggregated(tmp_path, write_run):
    for seed in range(3):
        write_run(f"a{seed}", seed=seed)
    assert aggregate(groups(tmp_path), "eval/success")["rows"] == []
    write_run("b0", task="KukaReach")
    assert aggregate(groups(tmp_path), "eval/success")["rows"] == []


def test_settings_that_differ_and_those_that_do_not(tmp_path, write_run):
    write_run("a", bonus="none", ppo={"lr": 0.001, "epochs": 5})
    write_run("b", bonus="rnd", ppo={"lr": 0.001, "epochs": 5}, rnd={"lr": 0.1})
    write_run("c", bonus="rnd", ppo={"lr": 0.001, "epochs": 5}, rnd={"lr": 0.1}, task="KukaPick")
    found = compared_settings(groups(tmp_path))
    differ = {row["name"]: row["values"] for row in found["differ"]}
    assert differ == {
        "bonus": {"none": ['"none"'], "rnd": ['"rnd"']},
        "rnd.lr": {"none": ["not set"], "rnd": ["0.1"]},
    }
    same = {row["name"]: row["value"] for row in found["same"]}
    assert same == {"steps": "1000", "ppo.lr": "0.001", "ppo.epochs": "5"}


def test_runs_made_with_the_same_versions_are_grouped(tmp_path, write_run):
    write_run("a")
    write_run("b", seed=1)
    other = write_run("c", seed=2)
    about = {"versions": {"python": "3.12"}, "git_revision": "abc", "resumed": [{}, {}]}
    (other / "about.json").write_text(json.dumps(about))
    one, two = versions(find_runs([tmp_path / "runs"]))
    assert [run["name"] for run in one["runs"]] == ["a", "b"]
    assert two["revision"] == "abc"
    assert two["runs"] == [{"name": "c", "command": None}]
    assert (one["resumed"], two["resumed"]) == (0, 2)


def test_warnings_are_grouped_by_kind(tmp_path, write_run):
    still = {"ppo/approx_kl": lambda x: 1e-6, "ppo/lr": lambda x: 1e-3}
    for seed in range(2):
        write_run(f"still-{seed}", seed=seed, rows=25, metrics=still)
    shorter = {
        "train/episode_steps": lambda x: 500.0 if x < 0.5 else 10.0 + x,
        "train/success": lambda x: 0.0,
    }
    write_run("shorter", metrics=still | shorter, rows=25)
    write_run("well", metrics={"ppo/approx_kl": lambda x: 0.01, "ppo/lr": lambda x: 1e-3}, rows=25)
    found = warnings(find_runs([tmp_path / "runs"]))
    runs = {some[0]["message"].split()[0]: [each["run"] for each in some] for some in found}
    assert runs == {"episodes": ["shorter"], "the": ["shorter", "still-0", "still-1"]}
