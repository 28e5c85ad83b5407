"""Tables made from curves, and the committed pages."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from benchmarks.tables import (
    Table,
    budget,
    improvement,
    log_rank_tests,
    pivot,
    rows,
    share,
    verdict,
)

from benchmarks import curves, tables
from mimex.study.groups import Group
from mimex.study.plan import find_plan
from mimex.study.runs import Run

SEA, CAR = "gym/mimex/DeepSea-v0", "gym/mimex/FlagCar-v0"
PAGES = tomllib.loads(tables.PAGES.read_text())
NAMES = PAGES.pop("names")


def run_of(task, seed, steps=(100, 200, 300), **metrics):
    """A run; in the name of a metric, __ stands for a slash, and None for a missing value."""
    columns = {"step": np.array(steps, float)}
    for name, values in metrics.items():
        columns[name.replace("__", "/")] = np.array(values, float)
    config = {"task": task, "seed": seed, "steps": 0}
    return Run(f"{task}-{seed}", Path("curves"), config, {}, columns)


def successes(task, label, *seeds, first=None):
    met = {} if first is None else {"explore__first_reward": [np.nan, np.nan, first]}
    runs = (run_of(task, seed, eval__success=x, **met) for seed, x in enumerate(seeds))
    return Group(task, label, tuple(runs))


SUITE = [
    successes(SEA, "rnd", (0, 0, 0), (0, 0, 1), first=250),
    successes(SEA, "mimex", (0, 1, 1), (0, 1, 1), first=110),
    successes(CAR, "mimex", (0, 0, 0.4), (0, 0, 0.4)),
]


def test_a_cell_has_solved_runs_final_success_and_first_reward():
    cell = ["solved", "final eval/success", "first explore/first_reward"]
    head, rnd, mimex = pivot(Table("pivot", cell=cell), SUITE)
    assert head == ["", SEA, CAR]
    assert rnd == ["rnd", "1 of 2; 50 % (0 to 100); 250", ""]
    assert mimex == ["mimex", "2 of 2; 100 % (100 to 100); 110", "0 of 2; 40 % (40 to 40); never"]


def test_areas_are_listed_by_seed_and_averaged_over_tasks():
    groups = [
        successes(SEA, "icm", (0.5, 0.5, 0.5), (1, 1, 1)),
        successes(CAR, "icm", (0.25, 0.25, 0.25), (0, 0, 0)),
        successes(SEA, "e3b", (0, 0, 0)),
    ]
    table = Table("pivot", cell=["areas eval/success"], mean="eval/success")
    assert pivot(table, groups)[1:] == [
        ["icm", "50, 100 %", "25, 0 %", "38, 50 %"],
        ["e3b", "0 %", "", ""],
    ]


def test_improvement_is_by_area_and_only_where_both_have_runs():
    [head, rnd] = improvement(Table("improvement"), SUITE)
    assert head == ["against", SEA, CAR, "all"]
    assert rnd[1].startswith("1.00 (")
    assert rnd[2] == ""
    assert rnd[3] == rnd[1]  # the one task that both have


def test_gated_tasks_have_a_column_where_both_methods_have_all_of_them():
    for gated, expected in (((SEA,), "1.00 ("), ((SEA, CAR), "")):
        [_, rnd] = improvement(Table("improvement", gated=gated), SUITE)
        assert rnd[3][:6] == expected
    [_, gated, _] = (Table(**table) for table in PAGES["suite"]["tables"])
    assert set(gated.gated) < set(find_plan("suite").tasks)


def test_first_rewards_are_compared_task_by_task():
    [_, rnd] = log_rank_tests(Table("log_rank"), SUITE)
    assert rnd[1].startswith("earlier, p = ")
    assert rnd[2] == ""


def test_returns_at_the_end_on_average_and_when_they_first_reach_a_level():
    values = {"none": [(0, 0, 100), (0, 0, 300)], "mimex": [(0, 500, 700)]}
    groups = [
        Group(SEA, label, tuple(run_of(SEA, i, eval__return=x) for i, x in enumerate(seeds)))
        for label, seeds in values.items()
    ]
    stats = [
        "final eval/return",
        "area eval/return",
        "reached eval/return 400",
        "areas eval/return",
    ]
    table = Table("rows", columns={stat: [stat] for stat in stats}, floor=0.0)
    _, none, mimex = rows(table, groups)
    # Trapezia: (0 + 0) / 2 and (0 + 100) / 2, on average 25; with 300 at the end 75.
    assert [re.sub(r" \(0 to .*?\)", "", cell) for cell in none[2:]] == [
        "200",
        "50",
        "never, never",
        "25, 75",
    ]
    assert mimex[2:] == ["700", "425", "200", "425"]


def test_events_have_a_median_step_and_a_count():
    runs = tuple(
        run_of(
            "FrankaPick", seed, (1_000, 5_000, 10_000),
            explore__first_touch=[np.nan, touch, touch], train__reached_touch=[0, 0, 0.03 * seed],
        )
        for seed, touch in enumerate((1_000, 3_000, np.nan))
    )  # fmt: skip
    touch = ["first explore/first_touch", "met explore/first_touch"]
    table = Table("rows", columns={"touch": touch, "moved": ["mean train/reached_touch"]})
    assert rows(table, [Group("FrankaPick", "rnd", runs)])[1][2:] == ["3k; 2 of 3", "3.0%"]


def test_each_run_has_a_row_and_its_own_budget_where_asked():
    short, long = (
        run_of(SEA, 0, (1, 2), eval__success=[0, 0]),
        run_of(SEA, 1, eval__success=[0, 0, 1]),
    )
    table = Table(
        "rows", columns={"final": ["finals eval/success"], "steps": ["steps"]}, per_run=True
    )
    assert rows(table, [Group(SEA, "rnd", (short, long))])[1:] == [
        [SEA, "rnd", "0", "0 %", "2"],
        [SEA, "rnd", "1", "100 %", "300"],
    ]


def test_shares_count_evaluations_within_the_budget_of_finished_runs():
    def group(label, *returns, steps=(100, 150, 200, 300)):
        runs = [
            run_of(SEA, i, steps, eval__return=x, eval__success=[0, 0, 0.5, 1])
            for i, x in enumerate(returns)
        ]
        return Group(SEA, label, tuple(runs))

    options = {"base": "before", "every": {"": 100}, "budgets": {SEA: 200}}
    groups = [
        group("before", (1, 99, 3, 99)),
        group("new", (2, 99, 4, 99), (2, 99, 8, 99)),
        group("stopped", (9, 9, 9, 9), steps=(100, 110, 120, 130)),
    ]
    assert share(Table("share", options=options), groups)[1:] == [
        ["before", "1", "1.00", "1.00", "1.00 (50%)"],
        ["new", "1", "2.00", "2.00", "2.00 (50%, 50%)"],
    ]


def test_budgets_compare_at_the_same_steps_and_the_same_time():
    def run(seed, minutes, success):
        seconds = 60 * np.array(minutes)
        return run_of(SEA, seed, (1e6, 2e6), time__cpu_seconds=seconds, eval__success=success)

    quick, slow = run(0, (1, 2), (0.4, 1.0)), run(1, (4, 8), (0.6, 0.8))
    groups = [Group(SEA, "mimex", (quick,)), Group(SEA, "sb3", (quick, slow))]
    _, ours, theirs = budget(Table("budget", options={"axis": "step"}), groups)
    assert ours[2:] == [
        "1",
        "2.00 M steps",
        "20%",
        "40%",
        "70%",
        "100%",
        "2.00 M steps",
        "2.00 M steps",
    ]
    assert theirs[4:] == ["25%", "50%", "70%", "90%", "1.50 M steps", "2.00 M steps (1 of 2)"]
    _, ours, theirs = budget(Table("budget", options={"axis": "time/cpu_seconds"}), groups)
    assert ours[3:] == ["2.00 min", "20%", "40%", "70%", "100%", "2.00 min", "2.00 min"]
    assert theirs[7:] == ["65%", "3.00 min", "2.00 min (1 of 2)"]  # 30 and 100 % at two minutes


@pytest.mark.parametrize(
    ("dense", "sparse", "answer"),
    [(0.9, 0.05, "yes"), (0.9, 0.8, "no"), (0.2, 0.0, "unknown"), (0.9, 0.3, "partly")],
)
def test_exploration_is_the_problem_where_dense_is_learned_and_sparse_is_not(dense, sparse, answer):
    ends = {"dense": dense, "sparse": sparse}
    groups = [successes("FrankaPick", label, (0, 0, end)) for label, end in ends.items()]
    assert verdict(groups).startswith(answer)
    assert verdict(groups[:1]).startswith("unknown")


def test_tasks_and_methods_are_shown_by_the_names_that_readers_know():
    text = tables.markdown([["", "gym/CartPole-v1"], ["none", "1"]], {"none": "no bonus"})
    assert text == "|  | CartPole-v1 |\n| --- | --- |\n| no bonus | 1 |\n"


@pytest.mark.parametrize("name", PAGES)
def test_committed_pages_are_those_of_the_committed_curves(name):
    assert tables.page(name, PAGES[name], NAMES) == (tables.RESULTS / f"{name}.md").read_text()


def test_every_file_of_curves_is_in_a_table():
    used = {
        source["name"]
        for name, page in PAGES.items()
        for table in page["tables"]
        for source in table.get("sources", [{"name": name}])
    }
    assert {path.name.removesuffix(".csv.gz") for path in curves.FOLDER.iterdir()} == used


def test_the_plans_count_the_hand_where_they_count():
    """The features of a cell are where the oracle observation has the hand."""
    import gymnasium

    for run in find_plan("suite").runs("cpu", seeds=1, only=["count"]):
        if run.task.startswith("gym/"):
            continue
        env = gymnasium.make_vec(f"mimex/{run.task}-v0", num_envs=2, threads=1)
        observation, _ = env.reset(seed=0)
        hand = env.unwrapped.world.task.hand()
        np.testing.assert_allclose(observation[:, run.settings["count.features"]], hand, atol=1e-6)
