import io
import json
import time

import pytest
from rich.console import Console

from mimex.study.folder import StudyFolder
from mimex.study.plan import PlannedRun
from mimex.study.sweep import Progress
from mimex.study.table import StudyTable

RUNS = [PlannedRun(f"run-{i}", "FrankaReach", i, {}, {"steps": 1000}) for i in range(4)]


def report(folder, name, step, **metrics):
    path = folder.run(name) / "metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"step": step} | metrics) + "\n")


@pytest.fixture
def folder(tmp_path):
    return StudyFolder(tmp_path)


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def states(running, queued=(), done=(), failed=()):
    return Progress(list(queued), list(done), list(running), dict.fromkeys(failed, "reason"))


def test_plain_lines_tell_what_changes_and_then_how_long(folder, clock):
    out = io.StringIO()
    table = StudyTable(folder, RUNS, "eval/success", 2, console=Console(file=out, width=200))
    with table:
        table(states(["run-0", "run-1"], ["run-2", "run-3"]))
        report(folder, "run-0", 100)
        report(folder, "run-1", 100)
        clock[0] = 10.0
        table(states(["run-0", "run-1"], ["run-2", "run-3"]))
        report(folder, "run-0", 300, **{"eval/success": 0.5})  # 20 steps/s
        report(folder, "run-1", 300)
        clock[0] = 20.0
        table(states(["run-0", "run-1"], ["run-2", "run-3"]))
        report(folder, "run-0", 1000)
        clock[0] = 60.0
        table(states(["run-1"], ["run-2", "run-3"], ["run-0"]))
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["run-0: running", "run-1: running"]
    assert lines[2] == "run-0: done, eval/success 0.5"  # the newest score, though not in every row
    # run-1 makes 20 steps/s: 700 left take 35 s. The others take the mean of 18 and 20 steps/s,
    # 53 s each; two at once: (35 + 2 x 53) / 2.
    assert lines[3] == "1 running, 2 queued, 1 done, about 0:01:10 left"


def test_a_failed_run_and_a_new_attempt_are_reported(folder):
    out = io.StringIO()
    with StudyTable(folder, RUNS, "eval/success", 2, console=Console(file=out)) as table:
        table(states(["run-0"]))
        table(states([], ["run-0"]))
        table(states(["run-0"]))
        table(states([], failed=["run-0"]))
    assert out.getvalue().splitlines() == [
        "run-0: running",
        "run-0: queued",
        "run-0: running",
        "run-0: failed",
    ]


@pytest.mark.parametrize("height", [40, 11])
def test_the_live_table_shows_all_runs_or_first_those_that_run(folder, clock, height):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=height)
    report(folder, "run-3", 100, **{"eval/success": 0.25})
    with StudyTable(folder, RUNS, "eval/success", 2, console=console) as table:
        table(states(["run-3"], ["run-0", "run-1"], ["run-2"]))
        report(folder, "run-3", 600, **{"eval/success": 0.25})
        clock[0] = 10.0
        table(states(["run-3"], ["run-0", "run-1"], ["run-2"]))
        with console.capture() as captured:
            console.print(table.live.renderable)
    text = captured.get()
    row = next(line for line in text.splitlines() if "run-3" in line)
    for cell in ("running", "600", "1,000", "50", "0.25", "0:00:08"):
        assert cell in row
    assert "1 running, 2 queued, 1 done, about 0:00:24 left" in text
    if height == 40:
        assert all(run.name in text for run in RUNS)
    else:
        assert "run-2" not in text  # done
        assert "... and 1 more" in text


def test_a_metric_is_shown_as_it_is_written(tmp_path):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200)
    run = PlannedRun("run-0", "KukaPick", 0, {"x": "a"}, {"steps": 100, "seed": 0})
    with StudyTable(StudyFolder(tmp_path), [run], "[/b]", 1, console=console) as table:
        table(Progress(["run-0"], []))
    assert "[/b]" in out.getvalue()
