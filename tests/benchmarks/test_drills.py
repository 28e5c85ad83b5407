"""A few of the kills that ``benchmarks/drills.py`` tries by the thousand."""

import pytest
from benchmarks.drills import KILLS, PROCESSES, Tally, kill_drill, table

ELSEWHERE = {"study", PROCESSES}
"""Killed by tests/study/test_sweep.py and tests/commands/test_train_processes.py."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KILLS.keys() - ELSEWHERE))
def test_kills_at_random_moments_change_nothing(name, tmp_path):
    tally = Tally()
    kill_drill(name, 8, 0, tmp_path, tally)
    assert tally.done == 8
    assert tally.failures == []


def test_the_table_counts_kills_and_failures():
    *_, row = table({"study": Tally(1_250, 14, 4, ["run 3: exit code 1"])}).splitlines()
    assert row == "| study | 1,250 | 14 | 4 | 1 |"
