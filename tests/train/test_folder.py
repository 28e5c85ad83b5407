"""A run folder belongs to one run at a time, with one set of settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from mimex.track.jsonl import JSONLines
from mimex.train.folder import (
    ConfigMismatchError,
    FolderInUseError,
    FolderLostError,
    LostCheckpointsError,
    RunFolder,
)

CONFIG = {"task": "FrankaReach", "steps": 100, "ppo": {"epochs": 5, "clip": 0.1}, "out": "x"}


def claim(path: Path, config: dict, may_change: tuple[str, ...] = ()) -> None:
    with RunFolder(path) as run:
        run.claim(config, may_change)


def test_a_new_folder_gets_its_settings_and_what_made_it(tmp_path):
    path = tmp_path / "runs" / "first"
    assert RunFolder(path).config is None
    claim(path, CONFIG | {"out": path})
    assert json.loads((path / "config.json").read_text()) == CONFIG | {"out": str(path)}
    about = json.loads((path / "about.json").read_text())
    assert about["versions"].keys() >= {"mimex", "torch", "numpy", "gymnasium", "mujoco", "python"}
    assert about["cores"] >= 1
    assert {"git_revision", "platform", "started", "command"} <= about.keys()


def test_the_same_settings_continue_and_each_start_is_recorded(tmp_path):
    for _ in range(3):
        claim(tmp_path, CONFIG)
    about = json.loads((tmp_path / "about.json").read_text())
    assert [start["versions"] for start in about["resumed"]] == [about["versions"]] * 2


def test_a_removed_setting_is_ignored_if_it_was_off_and_refused_otherwise(tmp_path):
    claim(tmp_path, CONFIG | {"ppo": CONFIG["ppo"] | {"value_clip": None}})
    claim(tmp_path, CONFIG)
    claim(tmp_path / "b", CONFIG | {"ppo": CONFIG["ppo"] | {"value_clip": 0.2}})
    with pytest.raises(ConfigMismatchError, match=r"ppo\.value_clip: 0\.2 there, not set now"):
        claim(tmp_path / "b", CONFIG)


def test_settings_are_the_same_after_json_made_lists_of_tuples_and_text_of_nan(tmp_path):
    config = {"widths": (256, 128), "limit": float("nan"), "none": None, "empty": {}}
    claim(tmp_path, config)
    claim(tmp_path, config)


def test_other_settings_are_refused_with_every_difference_shown(tmp_path):
    claim(tmp_path, CONFIG)
    before = (tmp_path / "config.json").read_text()
    other = {"task": "KukaPick", "steps": 100, "ppo": {"epochs": 5, "clip": 0.2}, "seed": 1}
    with pytest.raises(ConfigMismatchError) as caught:
        claim(tmp_path, other)
    assert str(caught.value).splitlines()[1:-1] == [
        '  out: "x" there, not set now',
        "  ppo.clip: 0.1 there, 0.2 now",
        "  seed: not set there, 1 now",
        '  task: "FrankaReach" there, "KukaPick" now',
    ]
    assert (tmp_path / "config.json").read_text() == before


def test_settings_that_may_differ_are_taken_over(tmp_path):
    claim(tmp_path, CONFIG)
    longer = CONFIG | {"steps": 500, "ppo": {"epochs": 9, "clip": 0.1}}
    with pytest.raises(ConfigMismatchError, match=r"ppo\.epochs"):
        claim(tmp_path, longer, ("steps", "ppo.clip", "pp"))
    claim(tmp_path, longer, ("steps", "ppo"))
    assert RunFolder(tmp_path).config == longer


def test_settings_that_json_cannot_hold_leave_no_file(tmp_path):
    with pytest.raises(TypeError):
        claim(tmp_path, {"agent": object()})
    assert RunFolder(tmp_path).config is None


def test_a_second_run_in_the_folder_is_refused_by_the_number_of_the_first(tmp_path):
    with RunFolder(tmp_path):
        second = subprocess.run(
            [sys.executable, "-c", HOLDER, str(tmp_path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert second.returncode == 1
    assert f"FolderInUseError: {tmp_path} is in use" in second.stderr
    assert f"process {os.getpid()}" in second.stderr
    with RunFolder(tmp_path):
        pass


HOLDER = """
import pathlib, sys
from mimex.train.folder import RunFolder
with RunFolder(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_killed_run_gives_the_folder_back(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        refused = pytest.raises(FolderInUseError, match=f"process {holder.pid}")
        with refused, RunFolder(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with RunFolder(tmp_path):
        pass


def test_an_error_in_the_block_gives_the_folder_back(tmp_path):
    with pytest.raises(ZeroDivisionError), RunFolder(tmp_path):
        _ = 1 / 0
    with RunFolder(tmp_path):
        pass


def test_claiming_without_the_lock_and_a_file_in_the_way_are_refused(tmp_path):
    with pytest.raises(RuntimeError, match="with RunFolder"):
        RunFolder(tmp_path).claim(CONFIG)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file"), RunFolder(tmp_path / "file"):
        pass


def test_a_damaged_config_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"task": ')
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        claim(tmp_path, CONFIG)


ROWS = [
    '{"step": 10, "a": 1.0}\n',
    '{"step": 20, "a": 2.0}\n',
    '{"step": 20, "eval": 3.0}\n',
    '{"step": 30, "a": 4.0}\n',
]


def restored(path: Path, text: str, *saved: int | None) -> tuple[str, list[str]]:
    """The metrics after a continuation from a checkpoint, and what was said of them."""
    run = RunFolder(path)
    run.metrics.write_text(text)
    notes = run.restore_metrics(saved, first_save=100)
    left = run.metrics.read_text() if run.metrics.exists() else ""
    assert run.rows == left.count("\n")
    return left, notes


@pytest.mark.parametrize(
    ("rows", "step", "kept"),
    [
        (ROWS, 20, 3),
        (ROWS, 25, 3),
        (ROWS, 30, 4),
        (ROWS, 5, 0),
        ([*ROWS, '{"step": 3'], 30, 4),  # killed within a row
        ([*ROWS, '{"step": 40}'], 30, 4),  # killed just before its end
        ([], 0, 0),
    ],
)
def test_rows_after_the_checkpoint_are_cut_without_a_word(tmp_path, rows, step, kept):
    assert restored(tmp_path, "".join(rows), step, kept) == ("".join(rows[:kept]), [])


def test_a_row_that_an_unfinished_evaluation_will_write_again_is_cut(tmp_path):
    assert restored(tmp_path, "".join(ROWS), 20, 2) == ("".join(ROWS[:2]), [])


@pytest.mark.parametrize(
    "bad",
    [
        *("rubbish", "\0\0\0\0", "[]", "3", "null", "{}", '{"step": null}', '{"step": "a"}'),
        *('{"step": NaN}', '{"step": 1e999}', '{"step": true}', '{"step": -1}', "[" * 10_000),
    ],
)
def test_a_line_that_is_no_row_is_moved_aside_with_a_message_and_costs_no_other(tmp_path, bad):
    for place in range(5):
        lines = [*ROWS[:place], f"{bad}\n", *ROWS[place:]]
        text, notes = restored(tmp_path, "".join(lines), 30, 4)
        assert text == "".join(ROWS)
        assert "metrics.damaged.jsonl" in notes[0]
    assert (tmp_path / "metrics.damaged.jsonl").read_text() == f"{bad}\n" * 5


def test_a_row_that_lost_its_newline_is_kept(tmp_path):
    assert restored(tmp_path, "".join(ROWS)[:-1], 30, 4) == ("".join(ROWS), [])


@pytest.mark.parametrize(("cut", "lost"), [(10, 1), (30, 2), (60, 3), (1000, 4)])
def test_rows_that_are_missing_up_to_the_checkpoint_are_reported(tmp_path, cut, lost):
    text, notes = restored(tmp_path, "".join(ROWS)[:-cut], 30, 4)
    assert text == "".join(ROWS[: 4 - lost])
    assert f"metrics.jsonl lacks {lost} rows up to step 30" in notes[0]


@pytest.mark.parametrize("rows", [4, None])
def test_metrics_that_are_gone_are_reported(tmp_path, rows):
    notes = RunFolder(tmp_path).restore_metrics((30, rows), first_save=100)
    assert "metrics.jsonl lacks" in notes[0]
    assert list(tmp_path.iterdir()) == []


def test_rows_from_before_the_first_checkpoint_are_put_aside(tmp_path):
    run = RunFolder(tmp_path)
    run.metrics.write_text("".join(ROWS))
    (notes,) = [run.restore_metrics(None, first_save=30)]
    assert "4 rows moved to" in notes[0]
    assert (tmp_path / "metrics.before.jsonl").read_text() == "".join(ROWS)
    assert not run.metrics.exists()


def test_a_first_checkpoint_that_could_not_be_written_is_no_lost_one(tmp_path):
    run = RunFolder(tmp_path)
    run.metrics.write_text("".join(ROWS))
    run.checkpoints.mkdir()  # whose first file did not fit the disk
    assert "4 rows moved to" in run.restore_metrics(None, first_save=30)[0]
    run.metrics.write_text(ROWS[0])  # ended sooner the next time
    run.restore_metrics(None, first_save=30)
    assert (tmp_path / "metrics.before.jsonl").read_text() == "".join(ROWS)


def test_rows_of_checkpoints_that_are_gone_are_never_erased(tmp_path):
    run = RunFolder(tmp_path)
    run.metrics.write_text("".join(ROWS))
    with pytest.raises(LostCheckpointsError, match="metrics up to step 30, but no checkpoint"):
        run.restore_metrics(None, first_save=20)
    run.checkpoints.mkdir()
    with pytest.raises(LostCheckpointsError, match=r"restore checkpoints/, or remove metrics"):
        run.restore_metrics(None, first_save=100)
    assert run.metrics.read_text() == "".join(ROWS)
    (run.checkpoints / ".writing-step_000000000030.safetensors").touch()  # killed in the first
    run.restore_metrics(None, first_save=100)


@pytest.mark.parametrize("content", [None, "null", "[]", "3", '"x"', "", "{"])
def test_a_run_whose_settings_are_not_known_is_not_continued_under_others(tmp_path, content):
    with RunFolder(tmp_path) as run:
        run.claim(CONFIG)
        run.metrics.write_text(ROWS[0])
    (tmp_path / "config.json").unlink()
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json"):
        claim(tmp_path, CONFIG | {"seed": 5})
    assert not (tmp_path / "config.json").exists() or (
        (tmp_path / "config.json").read_text() == content
    )


def test_a_lock_file_that_was_removed_lets_nobody_in(tmp_path):
    with RunFolder(tmp_path):
        (tmp_path / ".lock").unlink()
        with pytest.raises(FolderInUseError), RunFolder(tmp_path):
            pass


def test_a_folder_that_was_renamed_or_removed_is_noticed(tmp_path):
    path, other = tmp_path / "run", tmp_path / "other"
    with RunFolder(path) as run:
        run.require_same()
        path.rename(other)
        with pytest.raises(FolderLostError, match="renamed or removed"):
            run.require_same()
        path.mkdir()  # somebody else's
        with pytest.raises(FolderLostError, match="renamed or removed"):
            run.require_same()
        path.rmdir()
        other.rename(path)
        run.require_same()


@pytest.mark.parametrize("name", ["checkpoints", "novelty", "replay", "videos", "tensorboard"])
def test_folders_that_lead_elsewhere_are_refused(tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=f"run/{name} is a symbolic link"):
        claim(tmp_path / "run", CONFIG)


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", ".writing-config.json", "config.json"])
def test_files_that_lead_elsewhere_are_not_written_through(tmp_path, name):
    run, secret = tmp_path / "run", tmp_path / "secret"
    run.mkdir()
    secret.write_text("[]\n" * 3)
    (run / name).symlink_to(secret)
    with suppress(OSError, ValueError), RunFolder(run) as folder:
        folder.claim(CONFIG)
        folder.restore_metrics((10, None), first_save=100)
    with suppress(OSError):
        JSONLines(run / "metrics.jsonl").write(1, {"a": 1.0})
    assert secret.read_text() == "[]\n" * 3
