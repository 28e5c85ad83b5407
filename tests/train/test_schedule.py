import pytest

from mimex.train.clock import Clock
from mimex.train.schedule import cosine


def test_half_a_cosine():
    assert cosine(2.0, 0.0) == 2.0
    assert cosine(2.0, 0.5) == pytest.approx(1.0)
    assert cosine(2.0, 1.0) == pytest.approx(0.0)
    assert cosine(2.0, 1.5) == pytest.approx(0.0)  # stays there


def test_a_clock_tells_parts_and_pace_since_the_last_reading():
    clock = Clock()
    with clock("bonus"):
        pass
    first = clock.read(1000)
    assert first["time/bonus"] >= 0
    assert first["time/steps_per_second"] > 0
    assert "time/bonus" not in clock.read(1000)
