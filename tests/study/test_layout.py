"""The number of parallel runs is that with the highest measured speed."""

import json

import pytest

from mimex.cli import main
from mimex.study.folder import StudyFolder
from mimex.study.layout import Layout, choose_layout, layouts, measure
from mimex.study.plan import read_plan


@pytest.mark.parametrize(
    ("cores", "runs", "threads", "expected"),
    [
        (2, 9, None, [(2, 1), (1, 2)]),
        (8, 99, None, [(8, 1), (4, 2), (2, 4), (1, 8)]),
        (6, 9, None, [(6, 1), (3, 2), (1, 6)]),
        (8, 3, None, [(3, 2), (2, 4), (1, 8)]),
        (1, 9, None, [(1, 1)]),
        (8, 9, 2, [(4, 2)]),
        (2, 9, 4, [(1, 4)]),
    ],
)
def test_layouts_use_all_cores(cores, runs, threads, expected):
    assert layouts(cores, runs, threads) == expected


def test_the_fastest_layout_is_chosen_and_measured_once(tmp_path, tiny_plan, capsys):
    folder, run = StudyFolder(tmp_path), read_plan(tiny_plan).runs("cpu")[0]
    speeds = {(4, 1): 900.0, (2, 2): 1100.0, (1, 4): 1000.0}
    measured = []

    def fake(of, what, layout):
        measured.append((of, what, layout))
        return speeds[layout]

    options = [Layout(*pair) for pair in speeds]
    assert choose_layout(folder, run, options, fake) == (2, 2)
    assert measured == [(folder, run, option) for option in options]
    said = capsys.readouterr().out
    assert "2 in parallel, 2 threads each: 1,100 steps/s" in said
    assert json.loads((tmp_path / "jobs.json").read_text())["4x1"] == 900.0
    assert choose_layout(folder, run, options, fake) == (2, 2)
    assert len(measured) == 3  # known from the study's folder
    assert capsys.readouterr().out == said


def test_one_layout_needs_no_measurement(tmp_path, tiny_plan):
    run = read_plan(tiny_plan).runs("cpu")[0]
    assert choose_layout(StudyFolder(tmp_path), run, [Layout(1, 1)], measure=None) == (1, 1)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.slow
def test_a_speed_is_that_of_all_runs_and_a_broken_run_has_none(tmp_path, tiny_plan, monkeypatch):
    monkeypatch.setattr("mimex.study.layout.SECONDS", 1.0)
    folder, run = StudyFolder(tmp_path), read_plan(tiny_plan).runs("cpu")[0]
    before = sorted(tmp_path.iterdir())
    assert measure(folder, run, Layout(2, 1)) > 0
    run.settings["ppo.lr"] = 1e30
    assert measure(folder, run, Layout(1, 1)) == 0.0
    assert sorted(tmp_path.iterdir()) == before


def test_auto_is_refused_on_a_cluster(tmp_path, tiny_plan, capsys):
    words = ["study", "run", str(tiny_plan), "--out", str(tmp_path / "s"), "--backend", "ray"]
    assert main([*words, "--jobs", "auto"]) == 1
    assert "--jobs is 'auto'" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
