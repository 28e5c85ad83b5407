"""Studies in processes of their own: finished, failed, stopped and killed."""

import os
import signal

import pytest
from benchmarks.drills import differences, outcome
from tests.commands.test_train_damage import small_files
from tests.processes import lines, rows, start, wait_for, wait_for_rows

from mimex.cli import main
from mimex.study.backends import LocalBackend
from mimex.study.folder import StudyFolder
from mimex.study.plan import read_plan
from mimex.study.sweep import sweep


def command(plan, out, *more):
    words = ("--jobs", "2", "--threads", "1", "--no-report", *more)
    return ["study", "run", str(plan), "--out", str(out), *words]


def results(study):
    """All metrics, and the bytes of the last checkpoint, of every run."""
    return {
        run.name: (rows(run), max((run / "checkpoints").glob("step_*")).read_bytes())
        for run in (study / "runs").iterdir()
    }


def starts(study):
    """How often each run was started."""
    logs = (study / "logs").iterdir()
    return {log.stem: log.read_text().count("$ mimex train") for log in logs}


def processes_of(study):
    """Processes that write to a run folder of the study."""
    found = []
    for lock in study.glob("runs/*/.lock"):
        pid = lock.read_text()
        if pid and os.path.exists(f"/proc/{pid}") and int(pid) != os.getpid():
            found.append(int(pid))
    return found


def test_runs_are_made_once_and_skipped_when_finished(tiny_plan, tmp_path):
    runs = read_plan(tiny_plan).runs("cpu", seeds=1)
    folder = StudyFolder(tmp_path / "study")
    seen = []
    ended = sweep(folder, runs, LocalBackend(2), threads=1, watch=lambda p: seen.append(str(p)))
    assert sorted(ended.done) == sorted(run.name for run in runs)
    assert ended.queued == ended.running == []
    assert not ended.failed
    assert len(set(seen)) > 1  # whoever watches is shown what changes
    before = results(folder.path)
    assert all(run[-1]["step"] >= 320 for run, _ in before.values())
    again = sweep(folder, runs, LocalBackend(2), threads=1)
    assert len(again.done) == 2
    assert set(starts(folder.path).values()) == {1}
    assert results(folder.path) == before


@pytest.mark.slow
def test_a_failed_run_is_tried_twice_and_reported_with_the_tail_of_its_log(
    tiny_plan, tmp_path, capsys
):
    text = tiny_plan.read_text().replace('none = { bonus = "none" }', "broken = { ppo.lr = 1e30 }")
    tiny_plan.write_text(text)
    out = tmp_path / "study"
    assert main(command(tiny_plan, out, "--seeds", "1")) == 1
    assert starts(out) == {"FrankaReach-broken-0": 2, "FrankaReach-mimex-0": 1}
    said = capsys.readouterr().out
    assert "1 runs done, 1 failed" in said
    assert "FrankaReach-broken-0 ended with the exit code 1, after two attempts" in said
    assert "failed.safetensors" in said.splitlines()[-1]


def test_a_study_in_use_is_refused(tiny_plan, tmp_path, capsys):
    out = tmp_path / "study"
    process = start(command(tiny_plan, out, "--seeds", "1", "--set", "steps=1000000"))
    try:
        wait_for(process, (out / "study.json").exists)
        assert main(command(tiny_plan, out)) == 1
        assert f"in use by another run (process {process.pid})" in capsys.readouterr().err
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.slow
def test_a_stopped_study_lets_its_runs_save_and_continues(tiny_plan, tmp_path):
    out = tmp_path / "study"
    runs = [out / "runs" / f"FrankaReach-{method}-0" for method in ("none", "mimex")]
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(command(tiny_plan, out, "--seeds", "1", "--set", "steps=1000000"))
        for run in runs:
            wait_for_rows(process, run, lines(run) + 4)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        assert "the same command resumes" in said
        assert not processes_of(out)
        reached = [rows(run)[-1]["step"] for run in runs]
        for run, step in zip(runs, reached, strict=True):
            assert (run / "checkpoints" / f"step_{step:012d}.safetensors").exists()
    for run, step in zip(runs, reached, strict=True):  # each step once; the warm-up has no row
        assert [row["step"] for row in rows(run)] == list(range(64, step + 1, 32))


@pytest.mark.slow
def test_a_killed_study_ends_as_if_undisturbed(tiny_plan, tmp_path):
    """Killed alone, then with what it has not finished, as by a power cut."""
    text = tiny_plan.read_text().replace('bonus = "none"', 'bonus = "none", steps = 320')
    tiny_plan.write_text(text.replace("steps = 320\n", "steps = 1_920\n"))
    killed = tmp_path / "killed"
    short, long = (killed / "runs" / f"FrankaReach-{method}-0" for method in ("none", "mimex"))

    process = start(command(tiny_plan, killed, "--seeds", "1"))
    wait_for(process, lambda: lines(long) > 5)
    process.kill()
    process.communicate()

    process = start(command(tiny_plan, killed, "--seeds", "1"))  # its runs may still be saving
    last = short / "checkpoints" / "step_000000000320.safetensors"
    wait_for(process, lambda: lines(long) > 20 and last.exists())
    before = starts(killed)
    process.kill()
    for pid in processes_of(killed):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert rows(long)[-1]["step"] < 1_920

    assert main(command(tiny_plan, killed, "--seeds", "1")) == 0
    assert starts(killed) == {short.name: before[short.name], long.name: before[long.name] + 1}
    for planned in read_plan(tiny_plan).runs("cpu", seeds=1):  # as by `mimex train` in peace
        out = tmp_path / "straight" / planned.name
        assert main(["train", *planned.arguments, "--out", str(out), "--threads", "1"]) == 0
        assert differences(outcome(killed / "runs" / planned.name), outcome(out)) == []


@pytest.mark.slow
def test_a_study_without_room_for_first_checkpoints_continues_once_there_is(tiny_plan, tmp_path):
    out = tmp_path / "study"
    words = command(tiny_plan, out, "--seeds", "1", "--only", "mimex")
    with small_files(60_000):
        assert main(words) == 1
    assert main(words) == 0
    assert starts(out) == {"FrankaReach-mimex-0": 3}
    [(run, _)] = results(out).values()
    assert run[-1]["step"] == 320
