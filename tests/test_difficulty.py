"""The difficulty map tells where reward is hard to find from where it is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.difficulty import by_reward, difficulty_table, verdict

from mimex.study.difficulty import final_mean, first_reward, milestone
from mimex.study.runs import Run


def run_of(
    task,
    reward,
    success,
    *,
    reached="lift",
    rate=0.0,
    first=None,
    seed=0,
    bonus="none",
    budget=100_000,
) -> Run:
    steps = np.array([50_000.0, 100_000.0])
    columns = {"step": steps, "eval/success": np.array([0.0, success])}
    if reached:
        columns[f"train/reached_{reached}"] = np.array([0.0, rate])
    if first:
        columns["explore/first_reward"] = np.array([np.nan, first])
    config = {"task": task, "reward": reward, "seed": seed, "steps": budget, "bonus": bonus}
    name = f"{task}-{reward}-{seed}"
    return Run(name, Path(name), config, {}, columns)


HARD = [
    run_of("FrankaPick", "sparse", 0.0),
    run_of("FrankaPick", "dense", 0.75, rate=0.9, first=512.0),
]


def test_a_group_says_what_its_runs_came_to_from_easy_to_hard():
    dense, sparse = by_reward(HARD)
    assert (dense.label, final_mean(dense, "eval/success")) == ("dense", 0.75)
    assert (milestone(dense), first_reward(dense)) == (("lifted", 0.9), 512.0)
    assert (sparse.label, final_mean(sparse, "eval/success")) == ("sparse", 0.0)
    assert first_reward(sparse) == np.inf


def test_runs_with_a_bonus_do_not_count():
    assert by_reward([run_of("FrankaPick", "sparse", 1.0, bonus="mimex")]) == []


def test_the_length_of_episodes_stands_beside_each_cell():
    short, long = run_of("FrankaPick", "sparse", 0.0), run_of("FrankaPick", "dense", 1.0)
    for run, length in ((short, 15.0), (long, 400.0)):
        run.columns["train/episode_steps"] = np.array([300.0, length])
    groups = by_reward([short, long])
    rows = difficulty_table(groups).splitlines()[2:4]
    assert [row.split("|")[-2].strip() for row in rows] == ["400", "15"]


def test_seeds_are_averaged():
    runs = [run_of("FrankaPick", "sparse", s, rate=s, seed=i) for i, s in enumerate([0.0, 0.5])]
    (group,) = by_reward(runs)
    assert len(group.runs) == 2
    assert (final_mean(group, "eval/success"), milestone(group)[1]) == (0.25, 0.25)


def test_runs_that_did_not_report_are_not_taken_for_failures():
    groups = by_reward([run_of("FrankaReach", "sparse", 1.0, reached="")])
    assert milestone(groups[0])[1] is None
    assert first_reward(groups[0]) is None
    assert "| not reported | not reported | not reported |" in difficulty_table(groups)


@pytest.mark.parametrize(
    ("dense", "sparse", "answer"),
    [(0.9, 0.05, "yes"), (0.9, 0.8, "no"), (0.2, 0.0, "not known"), (0.9, 0.3, "partly")],
)
def test_exploration_is_the_problem_where_dense_is_learned_and_sparse_is_not(dense, sparse, answer):
    runs = [run_of("FrankaPick", "dense", dense), run_of("FrankaPick", "sparse", sparse)]
    assert verdict(by_reward(runs)).startswith(answer)


@pytest.mark.parametrize(
    ("dense", "sparse", "answer"),
    [
        (0.7, 0.0, "yes, as far as it is learned: opened 70% with dense, 0% with sparse"),
        (0.8, 0.7, "no, as far as it is learned"),
        (0.8, 0.3, "partly, as far as it is learned"),
        (0.13, 0.0, "likely: opened 13% with dense, 0% with sparse, but dense is not learned"),
        (0.03, 0.0, "not known"),
        (0.13, 0.02, "not known"),
    ],
)
def test_where_neither_succeeds_what_comes_before_success_is_compared(dense, sparse, answer):
    runs = [
        run_of("FrankaCabinet", "dense", 0.02, reached="open", rate=dense),
        run_of("FrankaCabinet", "sparse", 0.0, reached="open", rate=sparse),
    ]
    assert verdict(by_reward(runs)).startswith(answer)


def test_one_reward_alone_tells_nothing():
    assert verdict(by_reward(HARD[:1])).startswith("not known")


def test_unfinished_runs_are_shown_but_not_judged():
    runs = [HARD[1], run_of("FrankaPick", "sparse", 0.0, budget=200_000)]
    groups = by_reward(runs)
    assert "| FrankaPick | sparse | 100,000 so far | 0% |" in difficulty_table(groups)
    assert verdict(groups).startswith("not known")


def test_the_table_has_every_cell_and_every_verdict():
    table = difficulty_table(by_reward(HARD), {"FrankaPick": 0.99})
    assert "| FrankaPick | dense | 100,000 | 75% | lifted 90% | 512 |" in table
    assert "| FrankaPick | sparse | 100,000 | 0% | lifted 0% | never |" in table
    assert "| FrankaPick | yes: dense is learned, sparse is not | 99% |" in table
