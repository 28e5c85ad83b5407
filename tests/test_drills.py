"""A few of the kills and inputs that ``benchmarks/drills.py`` tries by the thousand.

Fifty kills and their inputs: ``python -m benchmarks.drills --kills 50 --inputs 180``.
"""

import random

import pytest
from benchmarks.drills import INPUTS, input_drill, kill_drill


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kills"), [("on-policy training", 4), ("off-policy training", 4), ("study", 2)]
)
def test_kills_at_random_moments_change_nothing(name, kills, tmp_path):
    counts = kill_drill(name, kills, random.Random(0), tmp_path)
    assert counts["kills"] == kills
    assert counts["failures"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_random_inputs_work_or_are_refused_in_a_line(name, tmp_path):
    assert input_drill(name, range(20), seed=0, place=tmp_path)["failures"] == 0


@pytest.mark.parametrize("name", INPUTS)
def test_the_drill_of_inputs_goes(name, tmp_path):
    assert input_drill(name, range(3), seed=0, place=tmp_path) == {"inputs": 3}
