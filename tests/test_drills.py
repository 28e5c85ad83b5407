"""A few of the kills and inputs that ``benchmarks/drills.py`` tries by the thousand."""

import pytest
from benchmarks.drill_inputs import INPUTS, input_drill
from benchmarks.drill_kills import KILLS, Tally, kill_drill


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLS)
def test_kills_at_random_moments_change_nothing(name, tmp_path):
    tally, kills = Tally(), round(50 * KILLS[name])
    kill_drill(name, kills, 0, tmp_path, tally)
    assert tally.done == kills
    assert tally.failures == []


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_random_inputs_work_or_are_refused_in_a_line(name, tmp_path):
    tally = Tally()
    input_drill(name, range(20), 0, tmp_path, tally)
    assert tally.failures == []


@pytest.mark.parametrize("name", INPUTS)
def test_the_drill_of_inputs_goes(name, tmp_path):
    tally = Tally()
    input_drill(name, range(3), 0, tmp_path, tally)
    assert tally == Tally(done=3)
