"""A few of the kills and inputs that ``benchmarks/drills.py`` tries by the thousand."""

import pytest
from benchmarks.drill_inputs import INPUTS, input_drill
from benchmarks.drill_kills import KILLS, Tally, kill_drill


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KILLS.keys() - {"study"}))  # a study: study/test_sweep.py
def test_kills_at_random_moments_change_nothing(name, tmp_path):
    tally = Tally()
    kill_drill(name, 8, 0, tmp_path, tally)
    assert tally.done == 8
    assert tally.failures == []


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where the runs that inputs damage are made once."""
    return tmp_path_factory.mktemp("inputs")


@pytest.mark.parametrize("name", INPUTS)
def test_the_drill_of_inputs_goes(name, place):
    tally = Tally()
    input_drill(name, range(3), 0, place, tally)
    assert tally == Tally(done=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_random_inputs_work_or_are_refused_in_a_line(name, place):
    tally = Tally()
    input_drill(name, range(3, 15), 0, place, tally)
    assert tally.failures == []
