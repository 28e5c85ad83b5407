"""Curves of run folders in one compressed file, and back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import curves


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "FOLDER", tmp_path / "curves")


def write_run(path, bonus, seed, rows, task="FrankaPick"):
    path.mkdir(parents=True)
    config = {"task": task, "bonus": bonus, "seed": seed, "steps": rows[-1]["step"]}
    (path / "config.json").write_text(json.dumps(config))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def two_runs(place, success=1.0):
    for bonus, first in (("none", None), ("mimex", 1536)):
        rows = [
            {"step": 1024, "train/return": -0.25, "time/simulation": 3.0},
            {"step": 2048, "eval/success": success, "eval/return": 1 / 3},
        ]
        if first:
            rows[1]["explore/first_reward"] = first
        write_run(place / bonus, bonus, 3, rows)


def test_what_is_collected_is_read_back_by_task_and_method(tmp_path):
    two_runs(tmp_path / "runs")
    curves.collect("pick", [tmp_path / "runs"])
    none, mimex = curves.read_groups("pick")
    assert [(g.task, g.label, g.runs[0].seed) for g in (none, mimex)] == [
        ("FrankaPick", "none", 3),
        ("FrankaPick", "mimex", 3),
    ]
    steps, values = mimex.runs[0].curve("eval/return")
    assert steps.tolist() == [2048]
    assert values.tolist() == [0.333333]  # six digits
    assert mimex.runs[0].curve("explore/first_reward")[1].tolist() == [1536]
    assert len(none.runs[0].curve("explore/first_reward")[0]) == 0
    assert "time/simulation" not in none.runs[0].columns  # not one of METRICS


def test_the_same_runs_give_the_same_bytes(tmp_path):
    two_runs(tmp_path / "runs")
    first = curves.collect("one", [tmp_path / "runs"]).read_bytes()
    again = curves.collect("two", [tmp_path / "runs"], study="one").read_bytes()
    assert first == again
    assert first[4:8] == bytes(4)  # gzip's time
    curves.write(curves.path_of("three"), curves.read(curves.path_of("one")))
    assert curves.path_of("three").read_bytes() == first


def test_runs_are_thinned_but_keep_their_evaluations(tmp_path):
    rows = [{"step": step, "train/return": 0.0} for step in range(1, 1002)]
    rows[500]["eval/return"] = 7.0
    write_run(tmp_path / "run", "none", 0, rows)
    curves.collect("long", [tmp_path / "run"])
    [group] = curves.read_groups("long")
    steps = group.runs[0].columns["step"]
    assert len(steps) == 201 + (500 % 5 != 0)
    assert group.runs[0].curve("eval/return")[0].tolist() == [501]
    assert np.all(np.diff(steps) > 0)


def test_runs_are_added_to_a_file_and_replace_their_predecessors(tmp_path):
    two_runs(tmp_path / "first", success=0.0)
    two_runs(tmp_path / "second", success=1.0)
    write_run(tmp_path / "kuka", "none", 0, [{"step": 1, "eval/success": 0.5}], task="KukaPick")
    curves.collect("all", [tmp_path / "first"])
    curves.collect("all", [tmp_path / "kuka"], add=True)
    curves.collect("all", [tmp_path / "second"], add=True)
    found = {
        (g.task, g.label): g.runs[0].curve("eval/success")[1][-1] for g in curves.read_groups("all")
    }
    assert found[("FrankaPick", "none")] == found[("FrankaPick", "mimex")] == 1.0
    assert found[("KukaPick", "none")] == 0.5
    curves.collect("all", [tmp_path / "kuka"])
    assert len(curves.read(curves.path_of("all"))) == 1


def test_groups_are_chosen_by_study_task_and_method(tmp_path):
    two_runs(tmp_path / "runs")
    curves.collect("all", [tmp_path / "runs"], study="one")
    curves.collect("all", [tmp_path / "runs"], study="two", add=True)
    assert len(curves.read_groups("all", study="one")) == 2
    assert [g.label for g in curves.read_groups("all", "two", methods=["mimex"])] == ["mimex"]
    assert curves.read_groups("all", tasks=["KukaPick"]) == []
