"""Rows arrive where they should, and what is missing is named."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from mimex.config import parse
from mimex.track import LOGGERS, make_logger
from mimex.track.jsonl import JSONLines
from mimex.track.loggers import Loggers, RunInfo

AWAY = {"wandb": "WANDB_DIR", "trackio": "TRACKIO_DIR"}
installed = {name: importlib.util.find_spec(name) is not None for name in [*AWAY, "tensorboard"]}


def test_each_row_is_one_line_that_is_there_at_once(tmp_path):
    path = tmp_path / "new" / "metrics.jsonl"
    sink = JSONLines(path)
    sink.write(10, {"train/success": 0.1, "bonus/mean": 1e-7})
    assert path.read_text() == '{"step": 10, "train/success": 0.1, "bonus/mean": 1e-07}\n'
    sink.write(20, {})
    sink.close()
    continued = JSONLines(path)
    continued.write(30, {"a": 0.1 + 0.2})
    continued.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [10, 20, 30]
    assert rows[2]["a"] == 0.1 + 0.2


def test_values_that_are_not_finite_become_null(tmp_path):
    sink = JSONLines(tmp_path / "x")
    sink.write(1, {"nan": float("nan"), "inf": float("inf"), "fine": 2.0})
    sink.close()
    assert json.loads((tmp_path / "x").read_text(), parse_constant=pytest.fail) == {
        "step": 1,
        "nan": None,
        "inf": None,
        "fine": 2.0,
    }


def replaced_by(path, text):
    """As an editor and `sed -i` do it: a new file takes the place of the old one."""
    aside = path.with_name("edited")
    aside.write_text(text)
    aside.rename(path)


def steps_in(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_file_that_is_replaced_costs_no_row(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    sink = JSONLines(path)
    for step in (1, 2, 3):
        sink.write(step, {"a": step})
    edited = path.read_text().splitlines(keepends=True)[0].replace("1.0", "1.5")
    replaced_by(path, edited.rstrip("\n"))  # read by the editor before the rows of 2 and 3
    sink.write(4, {"a": 4.0})
    assert steps_in(path) == [1, 2, 3, 4]
    assert path.read_text().startswith(edited)
    assert "was replaced" in caplog.text
    assert "2 missing rows" in caplog.text
    sink.write(5, {})
    path.unlink()
    sink.write(6, {})
    assert steps_in(path) == [1, 2, 3, 4, 5, 6]
    replaced_by(path, "")
    sink.close()  # also after the last row
    assert steps_in(path) == [1, 2, 3, 4, 5, 6]


def test_a_file_that_is_replaced_by_a_link_is_not_written_through(tmp_path):
    path, victim = tmp_path / "metrics.jsonl", tmp_path / "victim"
    sink = JSONLines(path)
    victim.write_text("precious")
    path.unlink()
    path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        sink.write(1, {})
    assert victim.read_text() == "precious"


def test_a_folder_that_is_renamed_takes_the_rows_along(tmp_path):
    folder, other = tmp_path / "run", tmp_path / "other"
    sink = JSONLines(folder / "metrics.jsonl")
    sink.write(1, {})
    folder.rename(other)
    sink.write(2, {})
    folder.mkdir()  # somebody else's
    sink.write(3, {})
    sink.close()
    assert list(folder.iterdir()) == []
    assert steps_in(other / "metrics.jsonl") == [1, 2, 3]


LIMITED = """
import pathlib, resource, sys
from mimex.track.jsonl import JSONLines
resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))
sink = JSONLines(pathlib.Path(sys.argv[1]))
sink.write(1, {"a": 1.0})
try:
    sink.write(2, {"a": 2.0, "b": 3.0})
except OSError as error:
    print(error)
sink.close()
"""


def test_a_full_disk_is_reported_once_with_the_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True
    )
    assert f"cannot write the metrics of step 2 to {path}" in ended.stdout
    assert path.read_text().splitlines()[0] == '{"step": 1, "a": 1.0}'


def run_info(folder, step=0):
    return RunInfo(folder, "reach-1", "mimex", step, {"ppo": {"epochs": 5}})


def test_loggers_are_chosen_by_name():
    assert parse(["FrankaReach", "--track.loggers", *LOGGERS]).track.loggers == tuple(LOGGERS)
    with pytest.raises(ValueError, match=r"--track.loggers is 'tensorbord'.*'tensorboard'"):
        parse(["FrankaReach", "--track.loggers", "tensorbord"]).checked()


@pytest.mark.skipif(not installed["tensorboard"], reason="tensorboard is not installed")
def test_tensorboard_reads_what_was_written_and_forgets_what_is_purged(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    before = make_logger("tensorboard", run_info(tmp_path))
    for step in (1, 2, 3):
        before.write(step, {"train/success": step / 4})
    before.close()
    after = make_logger("tensorboard", run_info(tmp_path, step=2))
    after.write(3, {"train/success": 1.0})
    after.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/success")] == [
        (1, 0.25),
        (2, 0.5),
        (3, 1.0),
    ]


@pytest.mark.parametrize("service", AWAY)
def test_a_service_that_is_not_installed_is_named_with_its_extra(service, tmp_path):
    if installed[service]:
        pytest.skip(f"{service} is installed")
    with pytest.raises(ImportError, match=rf"pip install 'mimex\[{service}\]'"):
        make_logger(service, run_info(tmp_path))


@pytest.mark.parametrize("service", AWAY)
def test_a_service_takes_a_run_and_its_continuation(service, tmp_path, monkeypatch):
    if not installed[service]:
        pytest.skip(f"{service} is not installed")
    monkeypatch.setenv(AWAY[service], str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    for start in (0, 2):
        sink = make_logger(service, run_info(tmp_path, start))
        for step in (start, start + 1):
            sink.write(step, {"train/success": step / 4})
        sink.close()
    assert any(b"reach-1" in path.name.encode() + path.read_bytes() for path in files(tmp_path))


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


class Memory:
    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def write(self, step: int, metrics: dict[str, float]) -> None:
        self.rows.append((step, metrics))

    def close(self) -> None:
        self.closed = True


def test_every_sink_gets_plain_floats_and_is_closed_even_after_an_error():
    one, two = Memory(), Memory()
    logger = Loggers([one, two])
    logger.log(5, {"a": torch.tensor(0.5), "b": np.float32(0.25), "c": 3, "d": True})
    with pytest.raises(ZeroDivisionError), logger:
        _ = 1 / 0
    assert one.rows == two.rows == [(5, {"a": 0.5, "b": 0.25, "c": 3.0, "d": 1.0})]
    assert all(type(value) is float for value in one.rows[0][1].values())
    assert one.closed
    assert two.closed


def test_a_metric_cannot_take_the_place_of_the_step():
    with pytest.raises(ValueError, match="'step'"):
        Loggers([]).log(1, {"step": 2.0})
