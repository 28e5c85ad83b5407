"""Run folders are found and loaded, and their rows become columns as `json` reads them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimex.study.runs import Run, find_runs, load_run, read_columns
from mimex.track.jsonl import JSONLines

CONFIG = {"task": "FrankaReach", "reward": "sparse", "bonus": "none", "seed": 0, "steps": 30}


def write_run(path: Path, rows=((10, 0.1), (20, 0.2), (30, 0.3)), **settings) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(CONFIG | settings))
    text = "".join(json.dumps({"step": step, "eval/success": y}) + "\n" for step, y in rows)
    (path / "metrics.jsonl").write_text(text)
    return path


def test_a_run_is_what_its_folder_says(tmp_path):
    path = write_run(tmp_path / "a", seed=3)
    (path / "about.json").write_text('{"command": "mimex train"}')
    run = load_run(path)
    assert (run.name, run.task, run.seed, run.finished) == ("a", "FrankaReach", 3, True)
    assert run.about == {"command": "mimex train"}
    steps, values = run.curve("eval/success")
    assert (steps.tolist(), values.tolist()) == ([10, 20, 30], [0.1, 0.2, 0.3])
    assert [len(x) for x in run.curve("never/reported")] == [0, 0]


def test_a_curve_leaves_out_rows_without_the_metric(tmp_path):
    path = write_run(tmp_path / "a")
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "train/return": 7.0}\n{"step": 50, "eval/success": null}\n')
    run = load_run(path)
    assert run.curve("eval/success")[0].tolist() == [10, 20, 30]
    assert run.curve("train/return")[0].tolist() == [40]


def test_a_run_short_of_its_budget_is_not_finished(tmp_path):
    assert not load_run(write_run(tmp_path / "a", steps=31)).finished
    assert not load_run(write_run(tmp_path / "b", rows=())).finished


def test_runs_are_found_at_and_below_paths_each_once(tmp_path):
    for name in ("study/runs/b-1", "study/runs/a-0", "alone"):
        write_run(tmp_path / name)
    (tmp_path / "study" / "logs").mkdir()
    (tmp_path / "study" / "runs" / "again").symlink_to(tmp_path / "alone")
    (tmp_path / "study" / "circle").symlink_to(tmp_path / "study")
    runs = find_runs([tmp_path / "alone", str(tmp_path / "study"), tmp_path])
    assert [run.name for run in runs] == ["alone", "a-0", "b-1"]


def test_a_path_without_runs_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no run folder"):
        find_runs([tmp_path])
    with pytest.raises(FileNotFoundError, match="does not exist"):
        find_runs([tmp_path / "missing"])
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        load_run(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_damaged_config_is_named(tmp_path, text):
    path = write_run(tmp_path / "a")
    (path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json"):
        load_run(path)


NAMES = st.sampled_from(
    ["train/return", "train/returns", "a", "bonus/mean", "bonus/means_of_a_long_name_x", "2.5"]
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, 1.0, -0.5, 1e-5, 123456789.5, 0.0001234567890123456, 1e16, 36.053450889262045]
)
ROWS = st.lists(st.dictionaries(NAMES, NUMBERS | st.none(), max_size=6), max_size=20)


def steps(count: int) -> list[int]:
    return [place * 10 ** min(place, 13) for place in range(count)]


def lines(rows: list[dict]) -> bytes:
    made = zip(steps(len(rows)), rows, strict=True)
    return b"".join(json.dumps({"step": step} | row).encode() + b"\n" for step, row in made)


@given(ROWS)
def test_columns_are_what_was_written_to_the_last_digit(found):
    columns = read_columns(lines(found))
    assert set(columns) == {"step"} | {name for row in found for name in row}
    assert columns["step"].tolist() == steps(len(found))
    for name, column in columns.items():
        if name != "step":
            expected = [row[name] if row.get(name) is not None else math.nan for row in found]
            np.testing.assert_array_equal(column, expected)


def test_what_the_logger_writes_is_read_as_it_was(tmp_path):
    sink = JSONLines(tmp_path / "metrics.jsonl")
    sink.write(16384, {"train/return": -0.014142961938471954, "ppo/lr": 8.186242440588742e-10})
    sink.write(32768, {"train/return": math.nan, "ppo/lr": 1e-3, "eval/success": 1.0})
    sink.close()
    columns = read_columns((tmp_path / "metrics.jsonl").read_bytes())
    assert columns["step"].tolist() == [16384, 32768]
    np.testing.assert_array_equal(columns["train/return"], [-0.014142961938471954, math.nan])
    np.testing.assert_array_equal(columns["ppo/lr"], [8.186242440588742e-10, 1e-3])
    np.testing.assert_array_equal(columns["eval/success"], [math.nan, 1.0])


@pytest.mark.parametrize(
    "rest",
    [
        b'{"step": 3, "a": 0.',
        b'{"step": 3, "a": 0.5}',
        b'{"step": 3, "a": 0.5\n',
        b"\x00\x00\x00\x00\n",
        b'{"step": 3, "a": 0x5}\n',
        b'{"a": 0.5}\n',
        b"[]\n",
        b"\n",
    ],
)
def test_what_is_no_row_is_left_out_and_costs_no_other(rest):
    columns = read_columns(b'{"step": 1, "a": 0.5}\n{"step": 2, "a": 1.5}\n' + rest)
    assert columns["step"].tolist() == [1, 2]
    assert columns["a"].tolist() == [0.5, 1.5]
    if rest.endswith(b"\n"):
        columns = read_columns(b'{"step": 1, "a": 0.5}\n' + rest + b'{"step": 2, "a": 1.5}\n')
        assert columns["a"].tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (b'{"step":1,"a":2}', 2.0),
        (b'{"step": 1, "a": true}', 1.0),
        (b'{"step": 1, "a": "words"}', math.nan),
        (b'{"step": 1, "a": {"b": 2.0}}', math.nan),
        (b'{"step": 1, "b": "\\u0061", "a": 2.5}', 2.5),
    ],
)
def test_rows_that_others_wrote_are_read_too(row, expected):
    np.testing.assert_equal(read_columns(row + b"\n")["a"].tolist(), [expected])


def test_no_rows_are_no_columns_but_the_step():
    for text in (b"", b"\n", b"not json\n"):
        assert {name: len(column) for name, column in read_columns(text).items()} == {"step": 0}


def test_names_that_differ_in_the_order_alone_stay_apart():
    text = b'{"step": 1, "a": 2.5, "b": 3.5}\n{"step": 2, "b": 4.5, "a": 5.5}\n'
    columns = read_columns(text)
    assert columns["a"].tolist() == [2.5, 5.5]
    assert columns["b"].tolist() == [3.5, 4.5]


def test_steps_that_repeat_or_go_back_are_left_out(tmp_path):
    run = load_run(
        write_run(tmp_path / "run", rows=((10, 0.1), (20, 0.2), (20, 0.9), (5, 0.8), (30, 0.3)))
    )
    steps, values = run.curve("eval/success")
    assert steps.tolist() == [10, 20, 30]
    assert values.tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("setting", [{"steps": 10**4000}, {"seed": "x"}, {"task": 3}])
def test_settings_of_a_wrong_kind_are_named(tmp_path, setting):
    if setting.get("steps"):
        path = write_run(tmp_path / "run")
        text = (path / "config.json").read_text().replace('"steps": 30', '"steps": ' + "9" * 4000)
        (path / "config.json").write_text(text)
    else:
        path = write_run(tmp_path / "run", **setting)
    with pytest.raises(ValueError, match=rf"config\.json .*{next(iter(setting))}"):
        load_run(path)


def test_a_run_that_gave_up_counts_to_the_end_of_its_budget():
    columns = {
        "step": np.array([1.0, 2.0, 3.0]),
        "eval/success": np.array([0.0, np.nan, 0.0]),
        "train/success": np.array([0.0, 0.0, 0.0]),
        "train/gave_up": np.array([np.nan, np.nan, 1.0]),
    }
    run = Run("run", Path("run"), {"steps": 6}, {}, columns)
    assert run.finished
    assert run.curve("eval/success")[0].tolist() == [1.0, 3.0, 6.0]
    assert run.curve("eval/success")[1].tolist() == [0.0, 0.0, 0.0]
    assert run.curve("train/success")[0].tolist() == [1.0, 2.0, 3.0]
