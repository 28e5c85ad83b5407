"""Every sink gets every row, as plain numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mimex.track.logger import Logger


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
    logger = Logger([one, two])
    logger.log(5, {"a": torch.tensor(0.5), "b": np.float32(0.25), "c": 3, "d": True})
    with pytest.raises(ZeroDivisionError), logger:
        _ = 1 / 0
    assert one.rows == two.rows == [(5, {"a": 0.5, "b": 0.25, "c": 3.0, "d": 1.0})]
    assert all(type(value) is float for value in one.rows[0][1].values())
    assert one.closed
    assert two.closed


def test_a_metric_cannot_take_the_place_of_the_step():
    with pytest.raises(ValueError, match="'step'"):
        Logger([]).log(1, {"step": 2.0})
