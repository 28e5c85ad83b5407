"""Studies in processes of their own: finished, failed, stopped and killed."""

import os
import signal

import pytest
from tests.processes import rows, start, wait_for

from mimex.cli import main
from mimex.study.backends import LocalBackend
from mimex.study.folder import StudyFolder
from mimex.study.plan_file import read_plan
from mimex.study.sweep import sweep


def command(plan, out, *more):
    return ["study", "run", str(plan), "--out", str(out), "--jobs", "2", "--no-report", *more]


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
def test_a_failed_run_is_tried_twice_and_told_with_its_last_words(tiny_plan, tmp_path, capsys):
    text = tiny_plan.read_text().replace('none = { bonus = "none" }', "broken = { ppo.lr = 1e30 }")
    tiny_plan.write_text(text.replace("steps = 320", "steps = 2_000"))
    out = tmp_path / "study"
    assert main(command(tiny_plan, out, "--seeds", "1")) == 1
    assert starts(out) == {"FrankaReach-broken-0": 2, "FrankaReach-mimex-0": 1}
    said = capsys.readouterr().out
    assert "1 runs done, 1 failed" in said
    assert "FrankaReach-broken-0 ended with the exit code 1, after two attempts" in said
    assert "failed.safetensors" in said.splitlines()[-1]


def test_a_study_in_use_is_refused(tiny_plan, tmp_path, capsys):
    out = tmp_path / "study"
    process = start(command(tiny_plan, out, "--set", "steps=1000000"))
    try:
        wait_for(process, (out / "study.json").exists)
        assert main(command(tiny_plan, out)) == 1
        assert f"in use by another run (process {process.pid})" in capsys.readouterr().err
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_study_lets_its_runs_save_and_continues(number, tiny_plan, tmp_path, capsys):
    out = tmp_path / "study"
    process = start(command(tiny_plan, out, "--seeds", "1", "--set", "steps=1000000"))
    runs = [out / "runs" / f"FrankaReach-{method}-0" for method in ("none", "mimex")]
    wait_for(process, lambda: all(len(rows(run)) > 3 for run in runs))
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "the same command continues" in said
    assert not processes_of(out)
    reached = [rows(run)[-1]["step"] for run in runs]
    for run, step in zip(runs, reached, strict=True):
        assert (run / "checkpoints" / f"step_{step:012d}.safetensors").exists()
    steps = max(reached) + 32
    assert main(command(tiny_plan, out, "--seeds", "1", "--set", f"steps={steps}")) == 0
    assert [rows(run)[-1]["step"] for run in runs] == [steps, steps]
    assert all(len({row["step"] for row in rows(run)}) == len(rows(run)) for run in runs)


@pytest.mark.slow
def test_a_killed_study_ends_as_if_undisturbed(tiny_plan, tmp_path):
    """Killed alone, then with all of its runs at once, as by a power cut."""
    budget = ("--set", "steps=2400")
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert main(command(tiny_plan, straight, *budget)) == 0

    process = start(command(tiny_plan, killed, *budget))
    first = killed / "runs" / "FrankaReach-none-0"
    wait_for(process, lambda: len(rows(first)) > 20)
    process.kill()
    process.communicate()

    process = start(command(tiny_plan, killed, *budget))  # while its runs may still be saving
    later = killed / "runs" / "FrankaReach-mimex-1"
    wait_for(process, lambda: len(rows(later)) > 5)
    finished = [run for run, (found, _) in results(killed).items() if found[-1]["step"] >= 2400]
    assert finished
    before = starts(killed)
    process.kill()
    for pid in processes_of(killed):
        os.kill(pid, signal.SIGKILL)
    process.communicate()

    assert main(command(tiny_plan, killed, *budget)) == 0
    assert {name: starts(killed)[name] for name in finished} == {
        name: before[name] for name in finished
    }
    assert results(killed) == results(straight)
