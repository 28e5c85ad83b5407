import json
import shutil

import pytest

from mimex.study.folder import StudyFolder
from mimex.study.plan import PlannedRun, find_plan
from mimex.train.checkpoint import Checkpoints

PLAN = find_plan("ablations")


def a_run(**settings):
    return PlannedRun("run-0", "KukaPick", 0, {"x": "a"}, {"steps": 100, "seed": 0} | settings)


def metrics(folder, text):
    path = folder.run("run-0") / "metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def checkpoint(folder, step):
    path = folder.run("run-0") / "checkpoints" / f"step_{step:012d}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_a_run_is_finished_when_metrics_and_checkpoint_have_reached_the_budget(tmp_path):
    folder, run = StudyFolder(tmp_path), a_run()
    assert not folder.finished(run)
    metrics(folder, '{"step": 96}\n{"step": 128}\n')
    assert not folder.finished(run)
    checkpoint(folder, 96)
    assert not folder.finished(run)
    checkpoint(folder, 128)
    assert folder.finished(run)
    assert not folder.finished(a_run(steps=129))


def test_the_latest_row_is_the_last_whole_one(tmp_path):
    folder = StudyFolder(tmp_path)
    assert folder.latest("run-0") == {}
    metrics(folder, '{"step": 1, "a": 2}\n{"step": 2, "a": 3}\n{"step": 3, "a"')
    assert folder.latest("run-0") == {"step": 2, "a": 3}
    metrics(folder, "".join(f'{{"step": {i}, "pad": "{"x" * 1000}"}}\n' for i in range(200)))
    assert folder.latest("run-0")["step"] == 199


def test_the_record_keeps_all_runs_that_were_ever_asked_for(tmp_path):
    folder = StudyFolder(tmp_path)
    folder.record(PLAN, "cpu", PLAN.runs("cpu", seeds=2))
    folder.record(PLAN, "cpu", PLAN.runs("cpu", tasks=["KukaPick"], seeds=1))
    study = json.loads((tmp_path / "study.json").read_text())
    assert [run["name"] for run in study["runs"]] == [run.name for run in PLAN.runs("cpu", seeds=2)]
    assert study["plan"]["metric"] == "eval/success"
    assert study["runs"][0]["labels"] == {"ablation": "base"}


def test_more_steps_continue_a_study_and_other_settings_do_not(tmp_path):
    folder = StudyFolder(tmp_path)
    folder.record(PLAN, "cpu", [a_run(**{"rnd.hidden": (8, 8)})])
    folder.record(PLAN, "cpu", [a_run(steps=200, **{"rnd.hidden": (8, 8)})])
    assert folder.read()["runs"][0]["settings"]["steps"] == 200
    with pytest.raises(ValueError, match="has another study: run-0"):
        folder.record(PLAN, "cpu", [a_run(**{"rnd.hidden": (8, 9)})])


def test_the_tail_of_a_log_is_its_last_lines(tmp_path):
    folder = StudyFolder(tmp_path)
    assert folder.log_tail("run-0") == []
    folder.log("run-0").parent.mkdir()
    folder.log("run-0").write_text("one\n\ntwo  \nthree\n")
    assert folder.log_tail("run-0", lines=2) == ["two", "three"]


@pytest.mark.parametrize("step", ['"x"', "null", "[]", "{}"])
def test_a_row_whose_step_is_no_number_is_skipped(tmp_path, step):
    folder = StudyFolder(tmp_path)
    metrics(folder, f'{{"step": 2, "a": 3}}\n{{"step": {step}}}\n')
    assert folder.latest("run-0") == {"step": 2, "a": 3}
    assert not folder.finished(a_run())


def test_a_run_that_leads_elsewhere_is_refused(tmp_path):
    folder = StudyFolder(tmp_path / "study")
    (tmp_path / "elsewhere").mkdir()
    folder.run("run-0").parent.mkdir(parents=True)
    folder.run("run-0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="run-0 is a symbolic link"):
        folder.record(PLAN, "cpu", [a_run()])


def test_a_last_save_that_was_cut_short_is_completed_without_starting_the_run_again(tmp_path):
    run = PlannedRun("one", "FrankaReach", 0, {}, {"steps": 30})
    folder = StudyFolder(tmp_path)
    checkpoints = Checkpoints(folder.run("one") / "checkpoints")
    for step in (10, 20, 30):
        checkpoints.save(step, {"x": step}, score=step)
    whole = sorted(path.name for path in checkpoints.folder.iterdir())
    # As after a kill between the checkpoint of step 30 and its copy to the best one.
    checkpoints.folder.joinpath("best.safetensors").unlink()
    checkpoints.folder.joinpath(".writing-best.safetensors").write_bytes(b"half")
    shutil.copy(
        checkpoints.folder / "step_000000000020.safetensors",
        checkpoints.folder / "step_000000000010.safetensors",
    )
    folder.repair(run)
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == whole
    step, state = checkpoints.best()
    assert (step, state["x"]) == (30, 30)
