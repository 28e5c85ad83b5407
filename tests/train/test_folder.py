"""A run folder belongs to one run at a time, with one set of settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mimex.train.folder import FolderInUseError, OtherConfigError, RunFolder

CONFIG = {"task": "FrankaReach", "steps": 100, "ppo": {"epochs": 5, "clip": 0.1}, "out": "x"}


def claim(path: Path, config: dict, force_keys: tuple[str, ...] = ()) -> None:
    with RunFolder(path) as run:
        run.claim(config, force_keys)


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


def test_settings_are_the_same_after_json_made_lists_of_tuples_and_text_of_nan(tmp_path):
    config = {"widths": (256, 128), "limit": float("nan"), "none": None, "empty": {}}
    claim(tmp_path, config)
    claim(tmp_path, config)


def test_other_settings_are_refused_with_every_difference_shown(tmp_path):
    claim(tmp_path, CONFIG)
    before = (tmp_path / "config.json").read_text()
    other = {"task": "KukaPick", "steps": 100, "ppo": {"epochs": 5, "clip": 0.2}, "seed": 1}
    with pytest.raises(OtherConfigError) as caught:
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
    with pytest.raises(OtherConfigError, match=r"ppo\.epochs"):
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


@pytest.mark.parametrize(
    ("rows", "after_step", "kept"),
    [
        (ROWS, 20, 3),
        (ROWS, 25, 3),
        (ROWS, 30, 4),
        (ROWS, 5, 0),
        (ROWS, None, 0),
        ([*ROWS, '{"step": 3'], 30, 4),  # killed within a row
        ([*ROWS, '{"step": 30}'], 30, 4),  # killed just before its end
        ([*ROWS, "\0\0\0\0\n"], 30, 4),  # a power cut can leave zeros
        ([], 10, 0),
    ],
)
def test_rows_after_the_checkpoint_are_cut(tmp_path, rows, after_step, kept):
    run = RunFolder(tmp_path)
    run.metrics.write_text("".join(rows))
    run.truncate_metrics(after_step)
    assert run.metrics.read_text() == "".join(rows[:kept])


def test_a_run_without_metrics_has_nothing_to_cut(tmp_path):
    RunFolder(tmp_path).truncate_metrics(10)
    assert list(tmp_path.iterdir()) == []
