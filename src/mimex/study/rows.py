"""The rows of metrics.jsonl as columns of numbers.

A study of 1,000 runs has a gigabyte of metrics, nearly all of it decimal fractions of 17 digits,
and `json` takes most of its time to turn those into floats one by one. Rows as our logger writes
them are therefore read all at once: eight digits of every number in a few integer operations.
Whatever is not plain (exponents, null) is converted singly, and whatever is not such a row is
left to `json`. The last digit may differ from that of `float` where there are more than 15.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
Words = NDArray[np.uint64]

_FIRST = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
"""Keeps the first 0 to 8 bytes of a word, whose first byte is the lowest."""

_LAST = np.array([(1 << 64) - (1 << 64 - 8 * count) for count in range(9)], np.uint64)
"""Keeps the last 0 to 8 bytes of a word."""

_MIXER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number, by which multiplying loses nothing: it spreads the bits of names."""

_LARGEST_STEP = 2.0**63

_WHOLE_DIGITS, _FRACTION_DIGITS = 16, 24
"""The longest numbers that are read all at once."""


def read_columns(text: bytes) -> dict[str, Numbers]:
    """The metrics of JSON lines by name ``(rows,)``, NaN where a row lacks one or has null.

    Lines that are no rows are left out, as continuing the run would do.
    """
    whole = text[: text.rfind(b"\n") + 1]
    columns = _read_plain(whole)
    return _read_json(whole) if columns is None else columns


def _read_json(text: bytes) -> dict[str, Numbers]:
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        step = row.get("step") if isinstance(row, dict) else None
        if isinstance(step, int | float) and 0 <= step < _LARGEST_STEP:
            rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: np.full(len(rows), np.nan) for name in names}
    for place, row in enumerate(rows):
        for name, value in row.items():
            if isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 1023):
                columns[name][place] = value
    return columns or {"step": np.empty(0)}


def _read_plain(text: bytes) -> dict[str, Numbers] | None:
    """The columns of rows ``{"name": number, "name": number}``; None if any is different."""
    if b"\\" in text or not text.startswith(b'{"step": '):
        return None
    characters = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(characters == ord('"'))
    row_ends = np.flatnonzero(characters == ord("\n"))
    opens, closes = quotes[: len(quotes) // 2 * 2 : 2], quotes[1::2]  # of the names
    begins, ends = closes + 3, np.append(opens[1:] - 2, 0)  # of the numbers
    last = np.searchsorted(opens, row_ends) - 1  # name of each row
    ends[last] = row_ends - 1
    padded = text + bytes(8)
    words: Words = np.ndarray((len(text) + 1,), "<u8", padded, strides=(1,))  # at every byte
    between = np.delete(ends, last)
    plain = (
        len(quotes) % 2 == 0
        and _all_are(words, np.append(0, row_ends[:-1] + 1), b'{"')
        and _all_are(words, row_ends - 1, b"}\n")
        and _all_are(words, closes, b'": ')
        and _all_are(words, between, b', "')
    )
    if not plain:
        return None
    try:
        values = _numbers(text, words, begins, ends)
    except ValueError:
        return None
    first = np.append(0, last[:-1] + 1)
    counts = last - first + 1
    places = np.arange(len(opens)) - np.repeat(first, counts)  # of a name in its row
    hashes = _hashes(words, opens + 1, closes) * (2 * places + 1).astype(np.uint64)
    layouts = np.add.reduceat(hashes, first)  # equal for rows of the same names in the same order
    columns: dict[str, Numbers] = {}
    for layout in dict.fromkeys(layouts.tolist()):
        rows = np.flatnonzero(layouts == layout)
        table = values[first[rows] + np.arange(counts[rows[0]])[:, None]]  # (names, rows)
        named = slice(first[rows[0]], last[rows[0]] + 1)
        for start, end, column in zip(opens[named] + 1, closes[named], table, strict=True):
            name = text[start:end].decode()
            columns.setdefault(name, np.full(len(row_ends), np.nan))[rows] = column
    steps = columns["step"]
    return columns if ((steps >= 0) & (steps < _LARGEST_STEP)).all() else None


def _all_are(words: Words, places: Places, characters: bytes) -> bool:
    """Whether these characters stand at every one of these places."""
    expected = np.uint64(int.from_bytes(characters, "little"))
    return bool((words[places] & _FIRST[len(characters)] == expected).all())


def _numbers(text: bytes, words: Words, begins: Places, ends: Places) -> Numbers:
    """The numbers that stand in the text from each begin to its end."""
    negative = words[begins] & _FIRST[1] == ord("-")
    firsts = begins + negative
    dots = np.minimum(firsts + _first_dot(words[firsts]), ends)
    # A dot that is not among the first eight characters is taken for a digit below, and found odd.
    dots[dots == firsts + 8] = ends[dots == firsts + 8]
    whole, fraction = dots - firsts, np.maximum(ends - dots - 1, 0)  # digits of each
    units, odd_units = _digits(words, dots, whole, _WHOLE_DIGITS)
    parts, odd_parts = _digits(words, ends, fraction, _FRACTION_DIGITS)
    scale = 10.0 ** np.minimum(fraction, _FRACTION_DIGITS)
    values: Numbers = np.where(negative, -1.0, 1.0) * (units * scale + parts) / scale
    for place in np.flatnonzero(odd_units | odd_parts | (whole == 0)):
        number = text[begins[place] : ends[place]]
        values[place] = np.nan if number == b"null" else float(number)
    return values


def _first_dot(words: Words) -> Places:
    """Which of a word's bytes is the first dot; 8 if none is."""
    zero_at_dots = words ^ np.uint64(0x2E2E2E2E2E2E2E2E)
    lowest = np.uint64(0x0101010101010101)
    found = (zero_at_dots - lowest) & ~zero_at_dots & (lowest << np.uint64(7))
    first = found & -found  # its lowest bit alone
    place: Places = np.frexp(first.astype(float))[1].astype(np.int64)  # 8, 16, ...; 0 if none
    return np.where(first == 0, 8, place // 8 - 1)


def _digits(
    words: Words, ends: Places, counts: Places, most: int
) -> tuple[Numbers, NDArray[np.bool_]]:
    """The numbers of some digits before each end, and which of these are no digits after all."""
    total, odd = np.zeros(len(ends)), counts > most
    for done in range(0, most, 8):
        here = np.clip(counts - done, 0, 8)
        if not here.any():
            break
        word = words[np.maximum(ends - done - 8, 0)] ^ np.uint64(0x3030303030303030)
        word &= _LAST[here]
        # Adding 118 sets the highest bit of a byte above 9.
        above = (word + np.uint64(0x7676767676767676)) | word
        odd |= above & np.uint64(0x8080808080808080) != 0
        # Pairs of digits, then pairs of these, then both fours.
        word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
        word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
        word = (word * np.uint64(10000) + (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
        total += word * 10.0**done
    return total, odd


def _hashes(words: Words, begins: Places, ends: Places) -> Words:
    """A number for each name, in which different names differ."""
    lengths = ends - begins
    hashes = lengths.astype(np.uint64)
    for done in range(0, int(lengths.max()), 8):
        word = words[np.minimum(begins + done, len(words) - 1)]
        hashes = (hashes ^ (word & _FIRST[np.clip(lengths - done, 0, 8)])) * _MIXER
    return hashes
