from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.ndimage import binary_dilation
from tests.study.report.unpack import unpacked

from mimex.study.groups import Group, group_runs
from mimex.study.report.curves import (
    FEWEST_BUCKETS,
    MOST_BUCKETS,
    VALUES,
    buckets_for,
    group_curves,
    metric_names,
    packed,
    thinned,
)
from mimex.study.runs import find_runs
from mimex.study.statistics import curve_band


def one_group(tmp_path):
    [group] = group_runs(find_runs([tmp_path / "runs"]))
    return group


def test_a_curve_is_the_mean_of_its_runs_with_the_interval_of_the_statistics(tmp_path, write_run):
    for seed, slope in enumerate((0.5, 0.7, 0.9)):
        write_run(f"r{seed}", seed=seed, metrics={"eval/success": lambda x, s=slope: s * x})
    group = one_group(tmp_path)
    curve = group_curves(group, ["eval/success"], 50)["eval/success"]
    x = unpacked(curve["x"])
    np.testing.assert_allclose(x, np.arange(50, 1001, 50), atol=0.01)
    np.testing.assert_allclose(unpacked(curve["mean"]), 0.7 * x / 1000, atol=1e-4)
    runs = np.array([slope * x / 1000 for slope in (0.5, 0.7, 0.9)])
    band = curve_band({"FrankaReach": runs}, "mean")
    np.testing.assert_allclose(unpacked(curve["low"]), np.maximum(band.low, 0), atol=1e-3)
    np.testing.assert_allclose(unpacked(curve["high"]), np.minimum(band.high, 1), atol=1e-3)
    assert [run["seed"] for run in curve["runs"]] == [0, 1, 2]
    np.testing.assert_allclose(unpacked(curve["runs"][2]["y"]), 0.9 * x / 1000, atol=1e-4)


def test_the_band_of_a_metric_nobody_compares_spans_the_runs(tmp_path, write_run):
    for seed in range(2):
        write_run(f"r{seed}", seed=seed, metrics={"ppo/std": lambda x, s=seed: s + x})
    curve = group_curves(one_group(tmp_path), ["ppo/std"], 50)["ppo/std"]
    np.testing.assert_allclose(unpacked(curve["high"]) - unpacked(curve["low"]), 1, atol=1e-3)
    assert "runs" not in curve


def test_one_run_has_no_band(tmp_path, write_run):
    write_run("r0")
    curve = group_curves(one_group(tmp_path), ["eval/success", "not/there"], 50)
    assert set(curve) == {"eval/success"}
    assert set(curve["eval/success"]) == {"x", "mean"}


def test_what_is_asked_for_most_is_offered_first(tmp_path, write_run):
    names = "time/bonus ppo/std bonus/mean explore/coverage train/lifted train/return train/success"
    names += " eval/success_low eval/return eval/success"
    write_run("r0", metrics={name: lambda x: x for name in names.split()})
    assert metric_names(find_runs([tmp_path / "runs"])) == [
        "eval/success",
        "eval/return",
        "train/success",
        "train/return",
        "train/lifted",
        "explore/coverage",
        "bonus/mean",
        "ppo/std",
        "time/bonus",
    ]


@pytest.mark.parametrize(("groups", "seeds"), [(2, 3), (32, 7), (200, 5)])
def test_more_curves_are_thinned_more(groups, seeds):
    some = [Group("task", str(g), runs=(None,) * seeds) for g in range(groups)]
    metrics = [f"eval/{i}" for i in range(10)] + [f"ppo/{i}" for i in range(12)]
    buckets = buckets_for(some, metrics)
    numbers = 2 * buckets * (4 * groups * 22 + 2 * groups * seeds * 10)
    assert FEWEST_BUCKETS <= buckets <= MOST_BUCKETS
    assert (buckets == MOST_BUCKETS) == (groups == 2)
    assert numbers <= VALUES


numbers = st.floats(-1e9, 1e9)


@given(st.lists(numbers, min_size=1))
def test_numbers_come_back_to_within_a_step_of_their_range(values):
    width = max(values) - min(values)
    error = np.abs(unpacked(packed(values)) - values).max()
    assert error <= 0.51 * width / 65534 + 5.1e-9 * max(map(abs, values)) + 1e-12


def test_what_is_missing_stays_missing():
    back = unpacked(packed([1.0, np.nan, 3.0]))
    assert back[0] == 1.0
    assert np.isnan(back[1])
    assert back[2] == 3.0
    assert np.isnan(unpacked(packed([np.nan]))).all()
    assert unpacked(packed([])).size == 0
    assert unpacked(packed([7.25, 7.25])).tolist() == [7.25, 7.25]


@given(st.lists(numbers, min_size=1, max_size=400), st.integers(1, 40))
def test_thinning_keeps_the_ends_and_the_reach_of_every_stretch(values, buckets):
    y = np.array(values)
    kept = thinned(y, buckets)
    assert len(kept) <= max(2 * buckets + 2, len(y) if len(y) <= 2 * buckets else 0)
    assert kept[0] == 0
    assert kept[-1] == len(y) - 1
    assert (np.diff(kept) > 0).all()
    edges = np.linspace(0, len(y), buckets + 1).astype(int)
    for first, end in pairwise(edges.tolist()):
        if end > first:
            inside = y[kept[(kept >= first) & (kept < end)]]
            assert inside.min() == y[first:end].min()
            assert inside.max() == y[first:end].max()


def picture(x, y):
    """A curve drawn as in a panel of the page, black on white."""
    figure = Figure(figsize=(3.0, 1.9), dpi=100)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.plot(x, y, "k", linewidth=1.4)
    axes.set(xlim=(0, len(FULL)), ylim=(FULL.min(), FULL.max()))
    axes.axis("off")
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., 0].astype(float) / 255


rng = np.random.default_rng(0)
FULL = 1 - np.exp(-np.linspace(0, 5, 5000)) + 0.05 * rng.normal(size=5000).cumsum() / 20
FULL[1234] += 0.8  # a spike of one point


def moved(one, other):
    """The share of either picture's ink that is further than a pixel from the other's."""
    ink = [picture < 0.5 for picture in (one, other)]
    near = [binary_dilation(dots, np.ones((3, 3))) for dots in ink]
    return max((ink[0] & ~near[1]).sum(), (ink[1] & ~near[0]).sum()) / ink[0].sum()


def test_a_thinned_curve_looks_the_same():
    x = np.arange(5000)
    kept = thinned(FULL, 150)
    assert len(kept) <= 302
    full, thin = picture(x, FULL), picture(x[kept], FULL[kept])
    assert moved(full, thin) < 0.002
    # As many points at even distances lose the spike: the test could fail.
    assert moved(full, picture(x[::16], FULL[::16])) > 0.02
