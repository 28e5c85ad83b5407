"""Durations by hand, by textbook and by SciPy; tests that count what they say."""

from __future__ import annotations

from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from mimex.study import survival
from mimex.study.groups import Group
from mimex.study.runs import Run
from mimex.study.survival import (
    METRIC,
    Durations,
    durations_of,
    first_rewards,
    log_rank,
    median,
    survival_curve,
)


def durations(observed, censored=()) -> Durations:
    steps = [*observed, *censored]
    return Durations(np.array(steps, float), np.arange(len(steps)) < len(observed))


def scipys(x: Durations) -> scipy.stats.CensoredData:
    return scipy.stats.CensoredData(uncensored=x.steps[x.observed], right=x.steps[~x.observed])


# Weeks of remission (Freireich et al., 1963): the data of the textbooks.
TREATED = durations(
    [6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
)
PLACEBO = durations([1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23])

# Few different steps, so that many are equal.
WAITS = st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=5).map(
    lambda runs: Durations(np.array([s for s, _ in runs], float), np.array([m for _, m in runs]))
)


def test_the_curve_by_hand():
    # Of five: one meets a reward at 2, one is cut off at 3, two of the three left meet one at 4.
    steps, shares = survival_curve(durations([2, 4, 4], [3, 9]))
    assert steps.tolist() == [0, 2, 3, 4, 9]
    assert shares == pytest.approx([1, 4 / 5, 4 / 5, 4 / 5 / 3, 4 / 5 / 3])


def test_a_run_cut_off_where_another_meets_a_reward_was_still_waiting():
    assert survival_curve(durations([5], [5, 7]))[1] == pytest.approx([1, 2 / 3, 2 / 3])


def test_medians_of_the_textbook():
    assert (median(TREATED), median(PLACEBO)) == (23, 8)


@pytest.mark.parametrize("runs", range(2, 41, 2))
def test_half_of_the_runs_are_half_whatever_rounding_says(runs):
    half = range(1, runs // 2 + 1)
    assert median(durations(half, [99] * (runs // 2))) == runs // 2
    assert median(durations(half, [99] * (runs // 2 + 1))) is None


def test_one_run_waits_until_its_reward_or_its_end():
    assert median(durations([7])) == 7
    assert median(durations([], [7])) is None
    assert survival_curve(durations([], [7]))[1].tolist() == [1, 1]


def test_the_statistic_is_that_of_the_textbook():
    found = log_rank({"": PLACEBO}, {"": TREATED})
    assert found.statistic**2 == pytest.approx(16.79, abs=0.005)
    assert found.statistic > 0  # placebo ends first
    assert found.p == pytest.approx(1 / (1 + survival.SAMPLES))  # 0.00004 by chi-square


@settings(deadline=None, max_examples=30)
@given(WAITS, WAITS)
def test_the_statistic_is_scipys(ours, theirs):
    found = log_rank({"": ours}, {"": theirs}).statistic
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = scipy.stats.logrank(scipys(ours), scipys(theirs)).statistic
    # Where nothing could have come otherwise SciPy divides 0 by 0.
    assert found == pytest.approx(expected if np.isfinite(expected) else 0.0, abs=1e-6)


def test_the_p_value_by_hand():
    # Of six ways to deal four runs out, the two that part them are the furthest.
    assert log_rank({"": durations([1, 2])}, {"": durations([3, 4])}).p == pytest.approx(2 / 6)
    assert log_rank({"": durations([1, 2])}, {"": durations([], [9, 9])}).p == pytest.approx(2 / 6)
    # One run against three. First: 1 - 1/4 over the root of 3/16 is 1.73. Last, without a reward:
    # 1/4 + 1/3 + 1/2 over the root of 3/16 + 2/9 + 1/4 is 1.33. The others are below 1.
    assert log_rank({"": durations([1])}, {"": durations([2, 3], [9])}).p == pytest.approx(1 / 4)
    assert log_rank({"": durations([], [9])}, {"": durations([1, 2, 3])}).p == pytest.approx(2 / 4)


@pytest.mark.parametrize("seeds", [3, 7])
def test_runs_that_all_differ_have_the_smallest_p_that_so_many_can_have(seeds):
    found = log_rank({"": durations(range(1, seeds + 1))}, {"": durations([], [99] * seeds)})
    assert found.p == pytest.approx(2 / comb(2 * seeds, seeds))


def test_the_p_value_counts_scipys_statistics_of_all_deals():
    ours, theirs = durations([2, 3, 3], [8]), durations([3, 7], [5])
    both = survival.pooled([ours, theirs])
    everyone = range(len(both.steps))
    sizes = []
    for chosen in combinations(everyone, len(ours.steps)):  # what was seen comes first
        first = np.isin(everyone, chosen)
        sides = [Durations(both.steps[side], both.observed[side]) for side in (first, ~first)]
        sizes.append(abs(scipy.stats.logrank(*map(scipys, sides)).statistic))
    expected = np.mean(np.array(sizes) >= sizes[0] - 1e-7)
    assert 0.1 < expected < 0.9
    assert log_rank({"": ours}, {"": theirs}).p == pytest.approx(expected)


STUDIES = st.lists(st.tuples(WAITS, WAITS), min_size=1, max_size=3).map(
    lambda pairs: tuple({str(i): pair[side] for i, pair in enumerate(pairs)} for side in (0, 1))
)


@settings(deadline=None, max_examples=40)
@given(STUDIES, st.sampled_from([0.125, 3.0, 1e6]), st.booleans())
def test_neither_the_unit_of_time_nor_the_order_of_methods_matters(studies, unit, exact):
    def other(study):
        return {task: Durations(unit * x.steps, x.observed) for task, x in study.items()}

    ours, theirs = studies
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survival, "MAX_EXACT", 50_000 if exact else 0)
        patch.setattr(survival, "SAMPLES", 199)
        found, scaled = log_rank(ours, theirs), log_rank(other(ours), other(theirs))
        turned = log_rank(theirs, ours)
    assert scaled == found
    assert turned.p == found.p
    assert turned.statistic == pytest.approx(-found.statistic)


def test_drawn_deals_agree_with_all_of_them(monkeypatch):
    ours = {"a": durations([1, 3, 5], [9]), "b": durations([2, 6], [9])}
    theirs = {"a": durations([2, 7], [9, 9]), "b": durations([7], [9, 9])}
    exact = log_rank(ours, theirs)
    assert 0.05 < exact.p < 0.3
    monkeypatch.setattr(survival, "MAX_EXACT", 0)
    drawn = log_rank(ours, theirs, seed=1)
    assert drawn.p == pytest.approx(exact.p, abs=0.02)
    assert log_rank(ours, theirs, seed=1) == drawn
    assert log_rank(ours, theirs, seed=2) != drawn


def test_runs_are_compared_within_their_tasks_only():
    # The easy task has runs of ours alone in its first steps: together that would look earlier.
    ours = {"easy": durations([1, 2, 3, 4, 5, 6]), "hard": durations([100])}
    theirs = {"easy": durations([1]), "hard": durations([100, 101, 102, 103, 104, 105])}
    assert log_rank(ours, theirs).p > 0.2
    together = [survival.pooled(list(study.values())) for study in (ours, theirs)]
    assert log_rank({"": together[0]}, {"": together[1]}).p < 0.05


def test_tasks_on_which_nobody_met_a_reward_change_nothing():
    ours, theirs = {"a": durations([1, 2, 3])}, {"a": durations([3], [9, 9])}
    never = {"b": durations([], [9, 9, 9])}
    assert log_rank(ours | never, theirs | never) == log_rank(ours, theirs)
    assert log_rank(never, never) == survival.LogRank(0.0, 1.0)


def test_other_tasks_are_refused():
    with pytest.raises(ValueError, match=r"ours has the tasks \['a'\], theirs has \['b'\]"):
        log_rank({"a": PLACEBO}, {"b": TREATED})


@pytest.mark.parametrize(("cut", "least"), [(40.0, 0.02), (8.0, 0.0)])
def test_one_comparison_in_twenty_is_called_different_by_chance(cut, least):
    """Or fewer, where one method's runs are cut off far earlier: few rewards are left to tell."""
    rng = np.random.default_rng(0)

    def some(until):
        steps = rng.exponential(20, 5)
        return Durations(np.minimum(steps, until), steps <= until)

    found = [log_rank({"": some(cut)}, {"": some(40.0)}).p for _ in range(300)]
    assert least <= np.mean(np.array(found) <= 0.05) < 0.08


def run(first=None, last=100.0, seed=0, rows=True) -> Run:
    step = np.array([last / 2, last]) if rows else np.empty(0)
    columns = {"step": step}
    if first is not None:
        columns[METRIC] = np.array([first if first <= last / 2 else np.nan, first])
    return Run("r", Path("r"), {"task": "t", "seed": seed}, {}, columns)


def test_the_wait_of_a_run_is_what_it_reported_or_all_its_steps():
    found = durations_of([run(30.0), run(70.0), run(last=80.0), run(rows=False)])
    assert found.steps.tolist() == [30, 70, 80]
    assert found.observed.tolist() == [True, True, False]


def group(task, label, *firsts) -> Group:
    return Group(task, label, tuple(run(first, seed=i) for i, first in enumerate(firsts)))


def test_the_table_has_tasks_then_all_together():
    rows = first_rewards(
        [
            group("a", "none", None, None, 90.0),
            group("a", "mimex", 10.0, 20.0, 30.0),
            group("b", "none", None, None, None),
            group("b", "mimex", 40.0, 60.0, None),
            group("c", "mimex", 5.0),
        ]
    )
    told = [(r.task, r.method, r.found, r.runs, r.median) for r in rows]
    assert told == [
        ("a", "none", 1, 3, None),
        ("a", "mimex", 3, 3, 20),
        ("b", "none", 0, 3, None),
        ("b", "mimex", 2, 3, 60),
        ("c", "mimex", 1, 1, 5),
        (None, "none", 1, 6, None),
        (None, "mimex", 5, 6, 30),
    ]
    p = [r.p for r in rows]
    assert p[0] is p[2] is p[4] is p[5] is None  # the baseline, or none to compare with
    assert p[1] == pytest.approx(2 / 20)
    assert p[6] < p[1] < p[3]


def test_without_rewards_there_is_no_table_and_without_baseline_no_p_value():
    assert first_rewards([group("a", "none", None), group("a", "rnd", None)]) == []
    assert first_rewards([]) == []
    rows = first_rewards([group("a", "icm", None, 3.0), group("a", "rnd", 2.0, 4.0)])
    assert [r.p for r in rows] == [None, None]
    assert [r.task for r in rows] == ["a", "a"]  # one task is not told twice
