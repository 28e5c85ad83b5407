from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.ndimage import binary_dilation

from mimex.study.report.encode import packed, thinned, unpacked

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


def test_numbers_too_large_for_a_difference_count_as_missing():
    back = unpacked(packed([-1.7e308, 1.7e308, np.inf, 5.0, 6.0]))
    assert np.isnan(back[:3]).all()
    assert back[3:].tolist() == [5.0, 6.0]


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
