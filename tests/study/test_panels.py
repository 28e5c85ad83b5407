"""Panels show each method as itself, with bands where there are seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from mimex.bonus import BONUSES
from mimex.study.groups import group_runs
from mimex.study.panels import (
    BASELINES,
    DASHES,
    OKABE_ITO,
    draw_curves,
    draw_survival,
    print_styles,
    styles,
)
from mimex.study.runs import Run

STEPS = 10_000 * np.arange(1, 6)


def lines_of(axes) -> dict[str, np.ndarray]:
    return {line.get_label(): line.get_ydata() for line in axes.get_lines()}


@pytest.mark.parametrize(
    ("task", "most", "expected"),
    [
        ("FrankaPick", 2e6, "million steps"),
        ("FrankaPick", 4e4, "thousand steps"),
        ("dmc/cartpole_balance", 4e4, "thousand frames"),
    ],
)
def test_the_axis_says_what_is_counted(task, most, expected):
    columns = {"step": np.array([0.0, most]), "eval/return": np.array([0.0, 1.0])}
    runs = [Run("x", Path("x"), {"task": task, "seed": 0}, {}, columns)]
    axes = Figure().add_subplot()
    draw_curves(axes, group_runs(runs), "eval/return", print_styles(["all runs"]))
    assert axes.get_xlabel() == expected


def test_bands_of_success_stay_between_none_and_all():
    runs = [
        Run("x", Path("x"), {"task": "t", "seed": seed}, {}, {"step": STEPS, "eval/success": y})
        for seed, y in enumerate([np.zeros(5), np.ones(5)])
    ]
    axes = Figure().add_subplot()
    draw_curves(axes, group_runs(runs), "eval/success", print_styles(["all runs"]))
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.0, 1.0)


def test_methods_differ_in_color_and_in_dashes():
    look = print_styles(["none", "icm", "rnd", "mimex"])
    assert len({style.color for style in look.values()}) == 4
    assert {style.dashes for style in look.values()} == set(DASHES)


def test_waits_are_steps_down_from_all_runs():
    first = {"step": STEPS, "explore/first_reward": np.array([np.nan, *[2e4] * 4])}
    runs = [
        Run("x", Path("x"), {"task": "t", "seed": seed, "bonus": "none"}, {}, columns)
        for seed, columns in enumerate([first, {"step": STEPS}])
    ]
    axes = Figure().add_subplot()
    draw_survival(axes, group_runs(runs), print_styles(["none"]))
    (line,) = axes.get_lines()
    assert line.get_xdata().tolist() == [0, 20, 50]
    assert line.get_ydata().tolist() == [1, 0.5, 0.5]
    assert line.get_drawstyle() == "steps-post"
    assert axes.get_xlabel() == "thousand steps"


def test_the_usual_methods_look_the_same_in_every_study():
    many, few = styles(["none", "icm", "rnd", "mimex"]), styles(["mimex", "T = 3", "none"])
    assert many["none"].color == BASELINES[0]
    assert few["mimex"] == many["mimex"]
    assert few["none"] == many["none"]
    assert few["T = 3"] not in (few["mimex"], few["none"])


def test_methods_differ_in_color_first_and_then_in_dashes():
    found = styles([f"T = {length}" for length in range(20)])
    assert len(set(found.values())) == 20
    first = list(found.values())[: len(OKABE_ITO)]
    assert len({style.color for style in first}) == len(OKABE_ITO)
    assert all(style.dashes == () for style in first)


def test_more_methods_than_styles_are_drawn_all_the_same():
    assert len(styles([str(i) for i in range(100)])) == 100


def test_every_bonus_that_there_is_has_a_style_of_its_own_in_any_study():
    assert len({styles([bonus])[bonus] for bonus in BONUSES}) == len(BONUSES)
