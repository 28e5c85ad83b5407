"""Rows of metrics become columns, as quickly as they can and as `json` would read them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimex.study import rows
from mimex.study.rows import read_columns
from mimex.track.sinks import JSONLines

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
def test_columns_are_what_json_reads_but_for_the_last_digit(found):
    columns = read_columns(lines(found))
    assert set(columns) == {"step"} | {name for row in found for name in row}
    assert columns["step"].tolist() == steps(len(found))
    for name, column in columns.items():
        if name != "step":
            expected = [row[name] if row.get(name) is not None else math.nan for row in found]
            np.testing.assert_allclose(column, expected, rtol=4e-16)


@given(st.lists(st.decimals(-10_000, 10_000, places=5).map(float), min_size=1))
def test_numbers_of_up_to_15_digits_are_exact(values):
    text = lines([{"x": value} for value in values])
    assert rows._read_plain(text)["x"].tolist() == values


def test_what_the_logger_writes_is_read_the_quick_way(tmp_path):
    sink = JSONLines(tmp_path / "metrics.jsonl")
    sink.write(16384, {"train/return": -0.014142961938471954, "ppo/lr": 8.186242440588742e-10})
    sink.write(32768, {"train/return": math.nan, "ppo/lr": 1e-3, "eval/success": 1.0})
    sink.close()
    columns = rows._read_plain((tmp_path / "metrics.jsonl").read_bytes())
    assert columns["step"].tolist() == [16384, 32768]
    np.testing.assert_allclose(columns["train/return"], [-0.014142961938471954, math.nan])
    np.testing.assert_allclose(columns["ppo/lr"], [8.186242440588742e-10, 1e-3])
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
    columns = rows._read_plain(text)
    assert columns["a"].tolist() == [2.5, 5.5]
    assert columns["b"].tolist() == [3.5, 4.5]


def test_many_rows_of_many_metrics_are_read_the_same_both_ways():
    generator = np.random.default_rng(0)
    table = generator.normal(size=(300, 22)) * 10.0 ** generator.integers(-6, 6, 22)
    found = [{f"group/metric_{place}": x for place, x in enumerate(row)} for row in table.tolist()]
    quick, slow = rows._read_plain(lines(found)), rows._read_json(lines(found))
    assert list(quick) == list(slow)
    for name in quick:
        np.testing.assert_allclose(quick[name], slow[name], rtol=4e-16)
