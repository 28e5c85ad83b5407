import json

import pytest

from mimex.study.report.overview import overview
from mimex.study.report.settings import ablations, compared_settings, versions
from mimex.study.runs import find_runs, group_runs


def groups(tmp_path):
    return group_runs(find_runs([tmp_path / "runs"]))


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


def test_an_ablation_has_the_scores_by_value_in_the_order_of_numbers(tmp_path, write_run):
    for length in (10, 2, 5):
        for seed in range(2):
            height = {"eval/success": lambda x, n=length: n / 10}
            name = f"{length}-{seed}"
            write_run(name, seed=seed, mimex={"length": length}, metrics=height)
    write_run("none", bonus="none", mimex={"length": 7})
    some = groups(tmp_path)
    [ablation] = ablations(some, overview(some, "eval/success"))
    assert ablation["setting"] == "mimex.length"
    assert ablation["values"] == ["2", "5", "10"]  # none has no windows
    scores = {point["value"]: point["final"]["value"] for point in ablation["points"]}
    assert scores == pytest.approx({"2": 0.2, "5": 0.5, "10": 1.0})


def test_methods_that_differ_in_the_bonus_alone_are_no_ablation(tmp_path, write_run):
    write_run("a", bonus="none", scale={"beta": 0.1}, mimex={"length": 5})
    write_run("b", bonus="mimex", scale={"beta": 0.5}, mimex={"length": 5})
    some = groups(tmp_path)
    assert ablations(some, overview(some, "eval/success")) == []


def test_runs_made_with_the_same_versions_are_told_together(tmp_path, write_run):
    write_run("a")
    write_run("b", seed=1)
    other = write_run("c", seed=2)
    about = {"versions": {"python": "3.12"}, "git_revision": "abc", "resumed": [{}, {}]}
    (other / "about.json").write_text(json.dumps(about))
    one, two = versions(find_runs([tmp_path / "runs"]))
    assert [run["name"] for run in one["runs"]] == ["a", "b"]
    assert two["revision"] == "abc"
    assert two["runs"] == [{"name": "c", "command": None, "resumed": 2}]
