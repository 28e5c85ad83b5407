"""The suite's tables, from curves as they are committed."""

import re

import numpy as np
import pytest
from benchmarks import suite

from mimex.study.plan_file import find_plan

SEA, CAR = "gym/mimex/DeepSea-v0", "gym/mimex/FlagCar-v0"


def write(folder, name, success, first=None):
    """A curve with an evaluation every 100 steps, and the step of its first reward."""
    lines = ["step,eval/success,explore/first_reward"]
    for place, value in enumerate(success, start=1):
        met = "" if first is None or first > 100 * place else first
        lines.append(f"{100 * place},{value},{met}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def curves(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "CURVES", tmp_path)
    folder = tmp_path / "suite"
    for seed in range(2):
        write(folder, f"DeepSea-v0-mimex-{seed}", [0, 1, 1], first=110 + 100 * seed)
        write(folder, f"DeepSea-v0-rnd-{seed}", [0, 0, seed], first=None if seed else 250)
        write(folder, f"FlagCar-v0-mimex-{seed}", [0, 0, 0.4])
    write(folder, "FlagCar-v0-mimex-99", [1, 1, 1])  # no seed of the plan
    write(folder, "nothing-of-ours-0", [1, 1, 1])
    return tmp_path


def test_curves_are_those_of_the_plan_in_its_order(curves):
    groups = suite.read_curves("suite")
    assert [(g.task, g.label, len(g.runs)) for g in groups] == [
        (SEA, "rnd", 2),
        (SEA, "mimex", 2),
        (CAR, "mimex", 2),
    ]
    assert groups[1].runs[1].curve("eval/success")[1].tolist() == [0.0, 1.0, 1.0]
    assert np.isnan(groups[1].runs[1].columns["explore/first_reward"][0])


def test_a_cell_tells_runs_solved_success_at_the_end_and_the_first_reward(curves):
    rows = {
        line.split(" | ")[0].strip("| "): line
        for line in suite.suite_table(suite.read_curves("suite")).splitlines()
    }
    assert "2 of 2; 100 % (100 to 100); 0k" in rows["mimex"]
    assert "1 of 2; 50 % (0 to 100)" in rows["rnd"]
    assert "0 of 2; 40 % (40 to 40); never" in rows["mimex"]  # the car


def test_who_is_better_is_told_by_the_area_and_only_where_both_have_runs(curves):
    table = suite.improvement_table(suite.read_curves("suite"), "mimex")
    [line] = [line for line in table.splitlines() if line.startswith("| rnd")]
    sea, car, both = (part.strip() for part in line.split("|")[2:5])
    assert sea.startswith("1.00 (")
    assert car == ""
    assert both == sea  # the one task that both have


def test_gated_tasks_have_a_column_of_their_own_where_both_have_them_all(curves):
    for gated, expected in (((SEA,), "1.00 ("), ((SEA, CAR), "")):
        table = suite.improvement_table(suite.read_curves("suite"), "mimex", gated=gated)
        [line] = [line for line in table.splitlines() if line.startswith("| rnd")]
        assert line.split("|")[4].strip()[:6] == expected
    assert set(suite.GATED) < set(find_plan("suite").tasks)


def test_first_rewards_are_compared_task_by_task(curves):
    table = suite.first_tests(suite.read_curves("suite"), "mimex")
    [line] = [line for line in table.splitlines() if line.startswith("| rnd")]
    assert "earlier, p = " in line


def test_the_plans_count_the_hand_where_they_count():
    """The numbers of a cell are where the oracle's observation has the hand."""
    import gymnasium

    for run in find_plan("suite").runs("cpu", seeds=1, only=["count"]):
        if run.task.startswith("gym/"):
            continue
        env = gymnasium.make_vec(f"mimex/{run.task}-v0", num_envs=2, threads=1)
        observation, _ = env.reset(seed=0)
        numbers = run.settings["count.numbers"]
        hand = env.unwrapped.world.task.hand()
        np.testing.assert_allclose(observation[:, numbers], hand, atol=1e-6)


def test_returns_are_told_at_the_end_on_average_and_when_they_are_first_good(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "CURVES", tmp_path)
    folder = tmp_path / "swingup-state"
    folder.mkdir()
    curves = {"none-0": (0, 0, 100), "none-9": (0, 0, 300), "mimex-0": (0, 500, 700)}
    for name, values in curves.items():
        rows = [f"{1000 * place},{value}" for place, value in enumerate(values, start=1)]
        path = folder / f"cartpole_swingup_sparse-{name}.csv"
        path.write_text("\n".join(["step,eval/return", *rows]) + "\n")
    groups = suite.read_curves("baselines-dmc", "swingup-state", seeds=10)
    none, mimex = suite.returns_table(groups).splitlines()[2:]
    # Trapezia: (0 + 0) / 2 and (0 + 100) / 2, on average 25; with 300 at the end 75.
    assert re.sub(r" \(.*?\)", "", none) == "| none | 2 | 200 | 50 | never, never | 25, 75 |"
    assert mimex == "| mimex | 1 | 700 | 425 | 2 | 425 |"
