"""Aggregates by hand and by SciPy, and intervals that hold the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from benchmarks.intervals import DISTRIBUTIONS, coverage, improvement_coverage
from hypothesis import given
from hypothesis import strategies as st

from mimex.study.statistics import (
    area_under_curve,
    curve_band,
    final_value,
    interval,
    iqm,
    mean,
    probability_of_improvement,
)

NUMBERS = st.floats(-1e3, 1e3)


def test_the_mean_gives_every_task_the_same_weight_whatever_its_seeds():
    assert mean({"a": [1.0, 3.0], "b": [10.0]}) == 6.0


def test_the_interquartile_mean_by_hand():
    assert iqm({"a": [4.0, 1.0, 3.0, 2.0]}) == 2.5
    # Of five runs a quartile falls at a quarter of the second: (0.75 * 2 + 3 + 0.75 * 5) / 2.5.
    assert iqm({"a": [1.0, 2.0, 3.0, 5.0, 100.0]}) == pytest.approx(3.3)
    # Of three the middle one lies between the quartiles whole, and of the others a quarter each:
    # (0.25 * 0 + 3 + 0.25 * 9) / 1.5.
    assert iqm({"a": [0.0, 3.0, 9.0]}) == pytest.approx(3.5)


def test_the_interquartile_mean_of_unequal_seeds_by_hand():
    # Weights 1/4, 1/4 of a and 1/2 of b; ranked 0, 2, 8: the middle half is all b's.
    assert iqm({"a": [0.0, 8.0], "b": [2.0]}) == pytest.approx(2.0)
    # Ranked 0 (1/4), 1 (1/6), 2 (1/6), 3 (1/6), 8 (1/4): all but the ends.
    assert iqm({"a": [0.0, 8.0], "b": [1.0, 3.0, 2.0]}) == pytest.approx(2.0)


@given(st.lists(NUMBERS, min_size=1, max_size=10).map(lambda x: x * 4))
def test_the_interquartile_mean_is_scipys_where_quartiles_fall_between_runs(values):
    expected = scipy.stats.trim_mean(values, 0.25)
    assert iqm({"a": values}) == pytest.approx(expected, abs=1e-9)


@given(st.lists(NUMBERS, min_size=2, max_size=12))
def test_seeds_given_twice_change_no_aggregate(values):
    # Once with equal weights, once with those of unequal seeds: two ways to the same number.
    once = {"a": values, "b": [0.5, 1.5]}
    twice = {"a": values * 2, "b": [0.5, 1.5]}
    assert iqm(once) == pytest.approx(iqm(twice), abs=1e-9)
    assert mean(once) == pytest.approx(mean(twice), abs=1e-9)


def test_the_area_is_the_mean_height_over_steps():
    assert area_under_curve([0, 10, 30], [0.0, 1.0, 1.0]) == pytest.approx((5 + 20) / 30)
    assert area_under_curve([5], [0.25]) == 0.25
    for steps in ([], [2, 1], [1, 1]):
        with pytest.raises(ValueError, match="steps"):
            area_under_curve(steps, [0.0] * len(steps))


def test_the_final_value_is_the_mean_of_the_last_tenth():
    assert final_value([50, 89, 90, 100], [9.0, 9.0, 1.0, 2.0]) == 1.5
    assert final_value([10, 20], [0.0, 0.75]) == 0.75
    with pytest.raises(ValueError, match="steps is empty"):
        final_value([], [])


def test_an_interval_of_many_runs_is_scipys():
    values = np.random.default_rng(0).gamma(2.0, size=400)
    ours = interval({"a": values}, "mean")
    theirs = scipy.stats.bootstrap((values,), np.mean, method="percentile", rng=1)
    width = ours.high - ours.low
    assert ours.value == pytest.approx(values.mean())
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.05 * width)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.05 * width)


def test_an_interval_of_few_runs_is_about_students():
    values = np.random.default_rng(0).normal(size=8)
    ours = interval({"a": values}, "mean")
    low, high = scipy.stats.t.interval(0.95, 7, loc=values.mean(), scale=scipy.stats.sem(values))
    assert [ours.low, ours.high] == pytest.approx([low, high], abs=0.1 * (high - low))


def test_the_same_seed_gives_the_same_interval_and_another_nearly_so():
    scores = {"a": [0.1, 0.5, 0.9, 0.3], "b": [0.2, 0.4, 0.8]}
    assert interval(scores, seed=3) == interval(scores, seed=3)
    one, other = interval(scores, seed=3), interval(scores, seed=4)
    assert one != other
    assert one.low == pytest.approx(other.low, abs=0.1 * (one.high - one.low))


def test_tasks_are_drawn_from_apart():
    # Each task's runs agree, so nothing is left to chance though the tasks differ.
    estimate = interval({"a": [0.0, 0.0], "b": [1.0, 1.0, 1.0]}, "mean")
    assert (estimate.low, estimate.value, estimate.high) == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    "ask",
    [
        lambda scores: interval(scores),
        lambda scores: curve_band({task: [[x] for x in xs] for task, xs in scores.items()}),
        lambda scores: probability_of_improvement(scores, scores),
    ],
)
def test_one_run_has_no_interval(ask):
    ask({"a": [0.0, 1.0], "b": [0.0, 1.0]})
    with pytest.raises(ValueError, match="'b' has 1 run"):
        ask({"a": [0.0, 1.0], "b": [0.5]})


@pytest.mark.parametrize("scores", [{}, {"a": []}, {"a": [0.0, np.nan]}])
def test_what_is_no_score_is_refused(scores):
    for ask in (mean, iqm, interval):
        with pytest.raises(ValueError, match=r"no scores|no runs|not finite"):
            ask(scores)


def test_an_unknown_statistic_is_refused():
    with pytest.raises(ValueError, match="did you mean 'mean'"):
        interval({"a": [0.0, 1.0]}, "means")


@pytest.mark.parametrize("statistic", ["iqm", "mean"])
def test_a_band_is_the_interval_at_each_point(statistic):
    generator = np.random.default_rng(0)
    curves = {"a": generator.random((5, 7)), "b": generator.random((3, 7))}
    band = curve_band(curves, statistic, seed=5)
    for point in range(7):
        alone = interval({task: x[:, point] for task, x in curves.items()}, statistic, seed=5)
        assert (band.value[point], band.low[point], band.high[point]) == pytest.approx(
            (alone.value, alone.low, alone.high)
        )


def test_the_probability_of_improvement_counts_pairs_and_half_of_ties():
    estimate = probability_of_improvement({"a": [1.0, 2.0, 3.0]}, {"a": [2.0, 0.0]})
    assert estimate.value == pytest.approx((1 + 1.5 + 2) / 6)


@given(st.lists(NUMBERS, min_size=2, max_size=9), st.lists(NUMBERS, min_size=2, max_size=9))
def test_the_probability_of_improvement_is_mann_and_whitneys(x, y):
    expected = scipy.stats.mannwhitneyu(x, y).statistic / (len(x) * len(y))
    found = probability_of_improvement({"a": x}, {"a": y})
    assert found.value == pytest.approx(expected)
    assert 0 <= found.low <= found.value <= found.high <= 1
    back = probability_of_improvement({"a": y}, {"a": x})
    assert (back.value, back.low) == pytest.approx((1 - expected, 1 - found.high), abs=1e-3)


def test_three_runs_that_beat_three_others_are_no_certainty():
    estimate = probability_of_improvement({"a": [4.0, 5.0, 6.0]}, {"a": [1.0, 2.0, 3.0]})
    assert estimate.value == estimate.high == 1.0
    assert 0.3 < estimate.low < 0.7


def test_the_interval_of_an_improvement_ends_where_its_spread_no_longer_explains_it():
    low = probability_of_improvement({"a": [4.0, 5.0]}, {"a": [1.0, 2.0, 3.0, 0.0]}).low
    # Hanley and McNeil: two of ours above one of theirs, one of ours above two of theirs.
    two_above_one, one_above_two = low / (2 - low), 2 * low**2 / (1 + low)
    variance = low * (1 - low) + (two_above_one - low**2) + 3 * (one_above_two - low**2)
    assert 1 - low == pytest.approx(1.96 * np.sqrt(variance / 8), abs=0.002)


def test_methods_are_compared_on_the_same_tasks():
    with pytest.raises(ValueError, match="expected the same"):
        probability_of_improvement({"a": [0.0, 1.0]}, {"b": [0.0, 1.0]})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "statistic"), [("normal", "mean"), ("success, partial", "iqm")]
)  # all pairs: python -m benchmarks.intervals
def test_intervals_hold_the_truth_as_often_as_they_say(name, statistic):
    """Of three runs a task, for which it takes both corrections: drawing n of n gives 0.93."""
    assert 0.935 <= coverage(DISTRIBUTIONS[name], statistic, 8, 3, times=300) <= 0.985


@pytest.mark.slow
def test_intervals_of_an_improvement_hold_the_truth_as_often_as_they_say():
    for seeds in (5, 10):
        assert 0.93 <= improvement_coverage(0.75, 8, seeds, times=1000) <= 0.97
