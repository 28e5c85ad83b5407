"""What is told of runs without reward, and of a search, from curves as they are committed."""

from benchmarks import bonus_search, coverage, found_to_learned, suite


def write(path, columns):
    """A curve of three rows; None is a cell that says nothing."""
    rows = zip(*columns.values(), strict=True)
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([",".join(columns), *lines]) + "\n")


def test_a_method_has_its_space_its_first_touch_and_lift_and_its_episodes(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "CURVES", tmp_path)
    for seed, touch in enumerate((1_000, 3_000, None)):
        columns = {
            "step": [1_000, 5_000, 10_000],
            "explore/coverage": [0.1, 0.2, 0.4],
            "explore/first_touch": [None, touch, touch],
            "explore/first_lift": [None, None, 9_000 if seed == 0 else None],
            "train/reached_touch": [0, 0, 0.03 * seed],
            "train/episode_steps": [10, 20, 30],
        }
        write(tmp_path / "coverage" / f"FrankaPick-rnd-{seed}.csv", columns)
    *_, row = coverage.table(suite.read_curves("coverage")).splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[0] == "rnd"
    assert cells[1].startswith("40 %")
    assert cells[2:] == ["3k; 2 of 3", "never; 1 of 3", "3.0%", "30"]


def test_a_search_tells_seeds_apart_and_averages_over_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "CURVES", tmp_path)
    heights = {"DeepSea-v0": (0.5, 1.0), "OrderedButtons-v0": (0.25, 0.0), "FrankaReachUp": (0, 1)}
    for task, seeds in heights.items():
        for seed, height in enumerate(seeds):
            columns = {"step": [1, 2, 3], "eval/success": [height] * 3}
            name = f"{task}-icm-3e-3-beta-1-{100 + seed}.csv"
            write(tmp_path / "bonus-search" / name, columns)
    groups = suite.read_curves(str(bonus_search.PLAN), "bonus-search")
    *_, row = bonus_search.table(groups).splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["icm 3e-3 beta 1", "50, 100", "25, 0", "0, 100", "25, 67"]


def test_what_no_plan_has_is_read_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(bonus_search, "CURVES", tmp_path)
    columns = {"step": [1, 2, 3], "eval/success": [0.5] * 3}
    for task in ("DeepSea-v0", "OrderedButtons-v0", "FrankaReachUp"):
        write(tmp_path / "candidates" / f"{task}-5-masks-100.csv", columns)
    write(tmp_path / "candidates" / "FrankaReachUp-whitened-101.csv", columns)
    groups = bonus_search.named_curves("candidates", bonus_search.TASKS)
    rows = {row.split("|")[1].strip(): row for row in bonus_search.table(groups).splitlines()[2:]}
    assert [cell.strip() for cell in rows["5-masks"].split("|")[2:-1]] == ["50"] * 4
    assert sorted(cell.strip() for cell in rows["whitened"].split("|")[2:-1]) == ["", "", "", "50"]


def test_from_found_to_learned_is_told_by_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "CURVES", tmp_path)
    seeds = {
        100: {"eval/success": [0.0, 0.4, 0.5, 0.2], "explore/first_reward": [None] + [1_000] * 3},
        101: {"eval/success": [0.0, 0.4, 0.4, 0.4], "explore/first_reward": [None] * 3 + [3_500]},
    }
    for seed, columns in seeds.items():
        path = tmp_path / "found-to-learned" / f"FrankaReachUp-default-{seed}.csv"
        write(path, {"step": [1_000, 2_000, 3_000, 4_000], **columns})
    groups = suite.read_curves(str(found_to_learned.PLAN), "found-to-learned")
    *_, row = found_to_learned.table(groups).splitlines()
    assert row == "| default | 1 + 2, 4 + never |"
