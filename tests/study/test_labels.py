"""Methods are named by what their runs differ in, and by no more."""

from __future__ import annotations

from mimex.study.labels import method_labels, natural


def config(task="FrankaReach", **settings):
    base = {"task": task, "reward": "sparse", "bonus": "none", "seed": 0, "steps": 100}
    base |= {"mimex": {"length": 5, "size": {"width": 128}}, "rnd": {"lr": 1e-3}}
    return base | {"scale": {"beta": 0.05}, "out": "somewhere"} | settings


def test_the_bonus_alone_names_methods_that_differ_in_it():
    configs = [config(bonus=bonus, seed=seed) for bonus in ("none", "mimex") for seed in (0, 1)]
    assert method_labels(configs) == ["none", "none", "mimex", "mimex"]


def test_what_follows_from_the_bonus_is_not_told_again():
    configs = [config(bonus="none"), config(bonus="mimex", scale={"beta": 0.005})]
    assert method_labels(configs) == ["none", "mimex"]


def test_settings_of_a_bonus_that_is_not_used_make_no_method():
    configs = [config(seed=0), config(seed=1, rnd={"lr": 1e-4}, scale={"beta": 0.5})]
    assert method_labels(configs) == ["none", "none"]


def test_nested_settings_are_told_by_their_last_name():
    configs = [config(bonus="mimex", mimex={"length": n, "mask_ratio": 0.7}) for n in (2, 5)]
    assert method_labels(configs) == ["length 2", "length 5"]


def test_settings_that_differ_between_tasks_only_are_the_tasks_own():
    configs = [config("FrankaReach", steps=100), config("FrankaPick", steps=900)]
    assert method_labels(configs) == ["none", "none"]


def test_several_differences_are_told_together():
    configs = [
        config(reward=reward, bonus=bonus)
        for reward, bonus in (("dense", "none"), ("sparse", "none"), ("sparse", "mimex"))
    ]
    assert method_labels(configs) == ["none, dense", "none, sparse", "mimex, sparse"]


def test_labels_are_sorted_with_no_bonus_first_and_numbers_by_size():
    labels = ["mimex", "length 10", "none, sparse", "length 2", "ratio 0.7", "ratio 0.25", "none"]
    assert sorted(labels, key=natural) == [
        "none", "none, sparse", "length 2", "length 10", "mimex", "ratio 0.25", "ratio 0.7",
    ]  # fmt: skip
