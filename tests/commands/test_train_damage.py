"""What a continued run makes of a folder that was damaged, emptied or tampered with."""

import json
import os
import resource
import shutil
import signal
from contextlib import contextmanager

import pytest
from tests.commands.test_train import A_ROLLOUT, command
from tests.processes import rows, start, wait_for_rows

from mimex.cli import main
from mimex.train.checkpoint import Checkpoints, load, save

UPDATES, LONGER = 12, 14


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    assert main(command(path, UPDATES)) == 0
    return path


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def contents(run):
    """All files but for the one that says who is at work."""
    paths = (path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(run): path.read_bytes() for path in paths}


def continued(run, capsys, *more):
    """The exit code of a longer run, and all that it said; one that is refused changes nothing."""
    capsys.readouterr()
    before = contents(run)
    code = main(command(run, LONGER, *more))
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    if code:
        assert contents(run) == before
    return code, said.out + said.err


def test_a_garbage_line_costs_no_row(run, capsys):
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join([*lines[:3], "garbage\n", *lines[3:]]))
    code, said = continued(run, capsys)
    assert code == 0
    assert "metrics.damaged.jsonl" in said
    assert [row["step"] for row in rows(run)] == [
        A_ROLLOUT * (update + 1) for update in range(1, LONGER + 1)
    ]


def test_missing_rows_are_reported(run, capsys):
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:-2]))
    code, said = continued(run, capsys)
    assert code == 0
    assert "lacks 2 rows" in said
    (run / "metrics.jsonl").unlink()
    assert "lacks 12 rows" in continued(run, capsys)[1]


def test_metrics_reach_the_disk_before_the_checkpoint_that_counts_on_them(tmp_path, monkeypatch):
    run, synced, fsync = tmp_path / "run", [], os.fsync

    def spy(descriptor):
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), len(rows(run))))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    assert main(command(run, 4)) == 0
    places = [place for place, (path, _) in enumerate(synced) if ".writing-step" in path]
    saves = [place for place in places if "checkpoints" in synced[place][0]]
    assert len(saves) == 2
    for place in saves:
        assert (str(run / "metrics.jsonl"), synced[place][1]) in synced[:place]


def test_without_the_last_checkpoints_the_best_is_resumed_with_a_note(run, capsys, caplog):
    for path in (run / "checkpoints").glob("step_*"):
        path.unlink()
    code, said = continued(run, capsys)
    assert code == 0
    assert "using the best" in caplog.text
    step = Checkpoints(run / "checkpoints").best()[0]
    assert f"resuming from step {step:,}" in said
    assert len(rows(run)) == LONGER


def test_a_kill_before_the_copy_of_the_best_costs_no_best_policy(run):
    last = max((run / "checkpoints").glob("step_*"))
    save(last, load(last) | {"score": 1.0})
    assert main(command(run, UPDATES)) == 0  # which has nothing left to train
    assert (run / "checkpoints" / "best.safetensors").read_bytes() == last.read_bytes()


@pytest.mark.parametrize("what", ["files", "folder"])
def test_without_any_checkpoint_metrics_are_not_erased(run, what, capsys):
    shutil.rmtree(run / "checkpoints")
    if what == "files":
        (run / "checkpoints").mkdir()
    code, said = continued(run, capsys)
    assert code == 1
    assert "no checkpoint to resume from" in said


@pytest.mark.parametrize("content", [None, "null", "[]", "3", "{"])
def test_a_run_without_its_settings_is_not_continued_under_others(run, content, capsys):
    (run / "config.json").unlink()
    if content is not None:
        (run / "config.json").write_text(content)
    code, said = continued(run, capsys, "--scale.beta", "7", "--seed", "3")
    assert code == 1
    assert "config.json" in said


def test_a_run_whose_folder_is_renamed_stops_and_is_not_split(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    process = start(command(run, 100_000))
    wait_for_rows(process, run, 1)
    run.rename(other)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "renamed or removed" in output
    assert "Traceback" not in output
    assert not run.exists()
    other.rename(run)
    reached = Checkpoints(run / "checkpoints").latest()
    assert main(command(run, 8 if reached is None else reached[0] // A_ROLLOUT + 2)) == 0


def test_metrics_that_are_replaced_while_a_run_is_on_lose_no_row(tmp_path, finished):
    run = tmp_path / "run"
    process = start(command(run, UPDATES))
    wait_for_rows(process, run, 2)
    (run / "edited").write_text("".join((run / "metrics.jsonl").read_text().splitlines(True)[:1]))
    (run / "edited").rename(run / "metrics.jsonl")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "was replaced" in output
    assert rows(run) == rows(finished)


def test_a_run_whose_lock_file_is_removed_stays_alone(tmp_path, capsys):
    run = tmp_path / "run"
    process = start(command(run, 100_000))
    try:
        wait_for_rows(process, run, 1)
        (run / ".lock").unlink()
        assert main(command(run, 100_000)) == 1
        assert "in use by another run" in capsys.readouterr().err
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("place", ["metrics.jsonl", ".lock", "checkpoints", "novelty"])
def test_links_in_a_folder_harm_nothing_outside(tmp_path, place, capsys):
    run, victim = tmp_path / "run", tmp_path / "victim"
    run.mkdir()
    victim.mkdir()
    (victim / "step_000000000999.safetensors").write_text("precious")
    target = victim / "step_000000000999.safetensors" if "." in place else victim
    (run / place).symlink_to(target)
    assert main(command(run, 1)) == 1
    error = capsys.readouterr().err
    assert f"{run / place} is a symbolic link" in error or f"{run} contains a run" in error
    assert [path.read_text() for path in victim.iterdir()] == ["precious"]


def test_links_in_place_of_unfinished_files_harm_nothing_outside(tmp_path):
    run, victim = tmp_path / "run", tmp_path / "victim"
    (run / "novelty").mkdir(parents=True)
    victim.write_text("precious")
    step = f"step_{2 * A_ROLLOUT:012d}.safetensors"
    for name in ("config.json", "about.json", f"checkpoints/{step}", f"novelty/{step}"):
        path = run / name
        path.parent.mkdir(exist_ok=True)
        if "checkpoints" not in name:
            path.with_name(f".writing-{path.name}").symlink_to(victim)
    (run / "checkpoints").rmdir()
    assert main(command(run, 1)) == 0
    assert victim.read_text() == "precious"
    assert not list(run.rglob(".writing-*"))


def damaged(run, change):
    for path in (run / "checkpoints").glob("*"):
        change(path)


def test_a_run_that_is_not_continued_keeps_the_rows_after_its_checkpoint(run, capsys):
    """They would be made again by a run that goes on; by one that is refused they would be lost."""
    damaged(run, lambda path: path.unlink() if path.name != "best.safetensors" else None)
    saved = load(run / "checkpoints" / "best.safetensors")
    state = without(saved["state"], "agent", "scale")
    save(run / "checkpoints" / "best.safetensors", saved | {"step": 3 * A_ROLLOUT, "state": state})
    assert continued(run, capsys)[0] == 1
    assert len(rows(run)) == UPDATES


def test_when_all_checkpoints_are_damaged_one_line_says_so(run, capsys):
    damaged(run, lambda path: path.write_bytes(path.read_bytes()[:-9]))
    code, said = continued(run, capsys)
    assert code == 1
    assert "all 3 checkpoints in" in said
    assert len(rows(run)) == UPDATES
    for words in (["eval", str(run)], ["eval", str(run), "--checkpoint", "best"]):
        assert main(words) == 1
        assert "Traceback" not in capsys.readouterr().err


def without(state, part, *inner):
    """A nested state without one of its parts."""
    rest = {name: value for name, value in state.items() if name != part}
    return rest | {part: without(state[part], *inner)} if inner else rest


@pytest.mark.parametrize(
    "part",
    [("agent",), ("step",), ("callbacks", "episodes"), ("agent", "scale"), ("agent", "probe")],
)
def test_a_checkpoint_that_lacks_a_part_names_its_version_and_the_remedy(run, part, capsys):
    def older(path):
        saved = load(path)
        save(path, saved | {"state": without(saved["state"], *part)})

    damaged(run, older)
    code, said = continued(run, capsys)
    assert code == 1
    assert "saved by mimex" in said
    assert "use the version that saved it" in said


@pytest.mark.parametrize("name", ["config.json", "about.json"])
@pytest.mark.parametrize("content", ["[]", "3", "null", "", "{", '{"versions": 3, "resumed": 4}'])
def test_files_of_a_wrong_shape_are_named(run, name, content, capsys):
    (run / name).write_text(content)
    code, said = continued(run, capsys)
    assert code == 1
    assert name in said or "other settings" in said


@pytest.mark.parametrize(
    "change", [{"task": 3}, {"envs": "many"}, {"ppo": 3}, {"ppo": {"lr": []}}, {"stepz": 3}]
)
def test_settings_of_a_wrong_kind_are_named(run, change, capsys):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | change))
    assert main(["eval", str(run), "--episodes", "1"]) == 1
    error = capsys.readouterr().err
    assert str(run / "config.json") in error
    assert next(iter(change)) in error


@pytest.mark.parametrize("horizon", ["many", [3], -1, 0.5, True])
def test_a_horizon_that_is_no_number_of_steps_is_named(run, horizon, capsys):
    """The one setting that a run takes from the file, where the command line does not say it."""
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"horizon": horizon}))
    code, said = continued(run, capsys)
    assert code == 1
    assert f"{run / 'config.json'} has {horizon!r} for horizon" in said


CLEARS = "\x1b[2J\x1b]0;mine\x07"  # the screen, and gives the window another title


def test_a_file_cannot_give_orders_to_the_terminal(run, capsys):
    about = json.loads((run / "about.json").read_text())
    about["versions"] |= {"torch": f"1.0{CLEARS}"}
    (run / "about.json").write_text(json.dumps(about))
    code, said = continued(run, capsys)
    assert code == 0
    assert r"torch 1.0\x1b[2J" in said
    assert not {"\x1b", "\x07"} & {*said}

    def older(path):
        saved = load(path)
        save(path, saved | {"mimex": CLEARS, "state": without(saved["state"], "agent")})

    damaged(run, older)
    code, said = continued(run, capsys)
    assert code == 1
    assert r"saved by mimex \x1b[2J" in said
    assert not {"\x1b", "\x07"} & {*said}


def test_other_versions_than_at_the_start_are_reported(run, capsys):
    about = json.loads((run / "about.json").read_text())
    about["versions"] |= {"torch": "1.0.0", "mimex": "0.0.1"}
    (run / "about.json").write_text(json.dumps(about))
    code, said = continued(run, capsys)
    assert code == 0
    assert "torch 1.0.0" in said
    assert "mimex 0.0.1" in said
    assert "may differ" in said


@contextmanager
def small_files(most):
    """A file-size limit (bytes), as of `ulimit -f`: to a program much like a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@pytest.mark.parametrize("agent", ["ppo", "drqv2"])
def test_no_room_for_the_first_checkpoint_is_no_end(tmp_path, finished, agent, capsys):
    run = tmp_path / "run"
    words = command(run, UPDATES) if agent == "ppo" else off_policy(run)
    for _ in range(2):
        with small_files(60_000):
            assert main(words) == 1
        assert "cannot write the checkpoint" in capsys.readouterr().err
    lost = rows(run)
    assert main(words) == 0
    assert f"{len(lost)} rows moved to" in capsys.readouterr().out
    assert rows(run)[: len(lost)] == lost
    assert agent == "drqv2" or rows(run) == rows(finished)


def off_policy(run):
    return [
        *("train", "gym/Pendulum-v1", "--agent", "drqv2", "--out", str(run), "--steps", "160"),
        *("--off-policy.report-every", "32", "--drqv2.seed-steps", "16", "--drqv2.batch", "8"),
        *("--drqv2.random-steps", "16", "--drqv2.hidden", "64", "--eval.episodes", "1"),
        *("--track.checkpoint-every", "64", "--threads", "1"),
    ]
