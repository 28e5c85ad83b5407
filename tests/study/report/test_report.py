"""The page as a file: whole, self-contained, small, and safe against names."""

import html
import json
import os
import re
import shutil
from itertools import product

import numpy as np
import pytest
from tests.study.report.unpack import unpacked

from mimex.study.report import write_report

NASTY = "<img src=x onerror=alert(1)> & <!--<script>"


def data_of(path):
    [text] = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL
    )
    return json.loads(text)


def test_a_report_has_the_data_of_the_runs(tmp_path, write_run):
    for bonus in ("none", "mimex"):
        for seed in range(2):
            write_run(f"{bonus}{seed}", bonus=bonus, seed=seed)
    write_run("late", bonus="rnd", done=0.4)
    written = write_report([tmp_path / "runs"], tmp_path / "deep" / "report.html")
    assert written.runs == 5
    assert written.bytes == written.path.stat().st_size
    data = data_of(written.path)
    page = written.path.read_text()
    assert "<h1>runs</h1>" in page
    assert "1 of 5 runs has not reached the step budget yet: late." in page
    assert data["score"] == "eval/success"
    assert [method["label"] for method in data["methods"]] == ["none", "mimex", "rnd"]
    assert {(c["task"], c["method"]) for c in data["curves"]} == {
        ("FrankaReach", method) for method in ("none", "mimex", "rnd")
    }


def test_a_study_names_methods_and_metric_itself(tmp_path, write_run):
    for length in (2, 5):
        metrics = {"eval/success": lambda x: x, "eval/return": lambda x: 9 * x}
        write_run(f"T-{length}", mimex={"length": length}, metrics=metrics)
    runs = [
        {"name": f"T-{length}", "labels": {"length": f"T = {length}", "size": "small"}}
        for length in (2, 5)
    ]
    study = {"plan": {"metric": "eval/return"}, "runs": runs}
    (tmp_path / "study.json").write_text(json.dumps(study))
    data = data_of(write_report([tmp_path], tmp_path / "report.html").path)
    assert [method["label"] for method in data["methods"]] == ["T = 2, small", "T = 5, small"]
    assert data["score"] == "eval/return"


def test_a_report_has_the_steps_to_the_first_reward(tmp_path, write_run):
    for seed in range(2):
        write_run(f"none{seed}", bonus="none", seed=seed)
    data = data_of(write_report([tmp_path / "runs"], tmp_path / "report.html").path)
    assert data["first_rewards"] == []
    for seed in range(2):
        metrics = {"eval/success": lambda x: x, "explore/first_reward": lambda x, s=seed: 7.0 + s}
        write_run(f"mimex{seed}", seed=seed, metrics=metrics)
    data = data_of(write_report([tmp_path / "runs"], tmp_path / "report.html").path)
    none, mimex = data["first_rewards"]
    assert (none["found"], none["runs"], none["median"], none["p"]) == (0, 2, None, None)
    assert (mimex["found"], mimex["median"]) == (2, 7.0)
    assert mimex["p"] == pytest.approx(1 / 3)


def test_names_cannot_become_markup(tmp_path, write_run):
    write_run(NASTY, task=NASTY, bonus="</script><script>alert(1)</script>")
    written = write_report([tmp_path / "runs" / NASTY], tmp_path / "report.html")
    page = written.path.read_text()
    assert page.count("<script") == 2  # the data and the code
    assert page.count("</script>") == 2
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt; &amp;" in page  # the title
    assert data_of(written.path)["tasks"] == [NASTY]


def test_the_page_fetches_nothing(tmp_path, write_run):
    write_run("a")
    written = write_report([tmp_path / "runs"], tmp_path / "report.html")
    page = html.unescape(written.path.read_text())
    assert set(re.findall(r"\w+://[^\s\"'`]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page
    assert re.search(r"script-src 'sha256-[\w+/]{43}='", page)


def test_nothing_is_written_where_there_are_no_runs(tmp_path):
    out = tmp_path / "report.html"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_report([tmp_path / "nowhere"], out)
    assert not out.exists()


@pytest.mark.slow
def test_a_thousand_runs_stay_below_15_megabytes(tmp_path, write_run, write_maps):
    rng = np.random.default_rng(0)
    names = [f"{kind}/{i}" for kind in ("train", "bonus", "ppo", "time") for i in range(5)]
    metrics = {name: lambda x: x + rng.normal() for name in ["eval/success", *names]}
    first = write_run("first", metrics=metrics, rows=100)  # more than a page shows of so many
    hands = rng.uniform((0, -0.6, 0), (1.2, 0.6, 1.2), (3, 4, 3))
    write_maps(first, [(320 * (i + 1), some, 1.0) for i, some in enumerate(hands)])
    for task, length, seed in product(range(8), range(25), range(5)):
        run = {"task": f"task {task}", "seed": seed, "mimex": {"length": length}}
        folder = write_run(f"{task}-{length}-{seed}", rows=1, **run)
        # The same for all, to be quick; symbolic links would not be read.
        (folder / "metrics.jsonl").unlink()
        (folder / "metrics.jsonl").hardlink_to(first / "metrics.jsonl")
        shutil.copytree(first / "novelty", folder / "novelty", copy_function=os.link)
    written = write_report([tmp_path / "runs"], tmp_path / "report.html")
    assert len(unpacked(data_of(written.path)["curves"][0]["metrics"]["train/0"]["x"])) < 100
    assert written.runs == 1001
    assert written.bytes < 15e6
