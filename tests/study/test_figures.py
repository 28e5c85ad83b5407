"""Figures show every method and task, with bands where there are seeds, in three formats."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from mimex.bonus import BONUSES
from mimex.study import figures
from mimex.study.figures import (
    BASELINES,
    DASHES,
    OKABE_ITO,
    STYLE,
    draw_curves,
    draw_survival,
    figures_of,
    print_styles,
    save,
    styles,
)
from mimex.study.groups import group_runs
from mimex.study.runs import Run, find_runs

TASKS, METHODS = ("FrankaReach", "KukaPick"), ("none", "mimex")
STEPS = 10_000 * np.arange(1, 6)


def write_study(path: Path, seeds: int) -> Path:
    planned = []
    for task in TASKS:
        for place, method in enumerate(METHODS):
            for seed in range(seeds):
                run = path / "runs" / f"{task}-{method}-{seed}"
                run.mkdir(parents=True)
                config = {"task": task, "bonus": method, "reward": "dense", "seed": seed}
                (run / "config.json").write_text(json.dumps(config | {"steps": 50_000}))
                rows = [
                    {"step": int(step), "eval/success": (place + 1 + 0.1 * seed) * step / 2e5}
                    for step in STEPS
                ]
                text = "".join(json.dumps(row) + "\n" for row in rows)
                (run / "metrics.jsonl").write_text(text)
                labels = {"method": f"method {method}"}
                planned.append({"name": run.name, "task": task, "seed": seed, "labels": labels})
    plan = {"name": "mine", "metric": "eval/success"}
    (path / "study.json").write_text(json.dumps({"plan": plan, "runs": planned}))
    return path


def drawn(groups, name: str):
    """A figure of some groups, by name."""
    return dict(figures.draw_figures(groups, "eval/success"))[name]


def lines_of(axes) -> dict[str, np.ndarray]:
    return {line.get_label(): line.get_ydata() for line in axes.get_lines()}


def test_a_study_becomes_files_with_its_methods(tmp_path):
    paths = figures_of(write_study(tmp_path / "study", seeds=3), tmp_path / "figures")
    names = {"curves", "scores", "aggregate"}
    assert {path.name for path in paths} == {
        f"{n}.{f}" for n in names for f in ("png", "pdf", "svg")
    }
    assert all(path.stat().st_size > 5_000 for path in paths)
    text = (tmp_path / "figures" / "curves.svg").read_text()
    for words in (*TASKS, "method none", "method mimex", "success rate", "3 seeds"):
        assert words in text
    assert (tmp_path / "figures" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "figures" / "curves.pdf").read_bytes().startswith(b"%PDF")


def test_the_same_runs_give_the_same_files(tmp_path):
    groups = group_runs(find_runs([write_study(tmp_path / "study", seeds=1)]))
    with matplotlib.rc_context(STYLE):
        once, again = (
            save(drawn(groups, "curves"), tmp_path / name, ["svg", "pdf"])
            for name in ("once", "again")
        )
    for one, other in zip(once, again, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_curves_are_means_with_bands_where_there_are_two_seeds_or_more(tmp_path):
    groups = group_runs(find_runs([write_study(tmp_path, seeds=2)]))
    figure = drawn(groups, "curves")
    assert [axes.get_title() for axes in figure.axes] == list(TASKS)
    lines = lines_of(figure.axes[0])
    assert lines["none"] == pytest.approx(1.05 * STEPS / 2e5)
    assert lines["mimex"] == pytest.approx(2.05 * STEPS / 2e5)
    assert len(figure.axes[0].collections) == 2

    alone = group_runs([group.runs[0] for group in groups])
    figure = drawn(alone, "curves")
    assert set(lines_of(figure.axes[0])) == {"none", "mimex"}
    assert len(figure.axes[0].collections) == 0


def test_final_scores_are_bars_with_a_dot_for_every_run(tmp_path):
    groups = group_runs(find_runs([write_study(tmp_path, seeds=3)]))
    figure = drawn(groups, "scores")
    axes = figure.axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([1.1 / 4, 2.1 / 4])
    assert [word.get_text() for word in axes.get_xticklabels()] == ["none", "mimex"]
    dots = [line for line in axes.get_lines() if line.get_marker() == "."]
    assert [sorted(line.get_ydata()) for line in dots] == [
        pytest.approx([0.25, 0.275, 0.3]),
        pytest.approx([0.5, 0.525, 0.55]),
    ]


def test_first_rewards_are_drawn_if_there_are_any(tmp_path):
    study = write_study(tmp_path / "study", seeds=1)
    metrics = study / "runs" / "KukaPick-mimex-0" / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"step": 60000, "explore/first_reward": 55000}\n')
    paths = figures_of(study, tmp_path, formats=["svg"])
    assert "first_reward" in {path.stem for path in paths}
    text = (tmp_path / "first_reward.svg").read_text()
    for words in (*TASKS, "method none", "runs without a reward", "1 seed each"):
        assert words in text


def test_unfinished_runs_are_noted(tmp_path):
    study = write_study(tmp_path / "study", seeds=2)
    config = study / "runs" / "KukaPick-none-1" / "config.json"
    config.write_text(config.read_text().replace("50000", "90000"))
    figures_of(study, tmp_path, formats=["svg"])
    assert "1 unfinished run in curves only" in (tmp_path / "curves.svg").read_text()


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match="formats is 'jpg'"):
        figures_of(write_study(tmp_path, seeds=1), tmp_path, formats=["jpg"])


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
