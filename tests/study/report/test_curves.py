import numpy as np
import pytest

from mimex.study.report.curves import (
    FEWEST_BUCKETS,
    MOST_BUCKETS,
    NUMBERS,
    buckets_for,
    group_curves,
    metric_names,
)
from mimex.study.report.encode import unpacked
from mimex.study.runs import Group, find_runs, group_runs
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
    assert numbers <= NUMBERS
