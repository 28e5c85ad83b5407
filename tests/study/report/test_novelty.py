import base64

import numpy as np
import pytest
import torch

from mimex.study.report.encode import unpacked
from mimex.study.report.novelty import STAGES, novelty
from mimex.study.runs import find_runs, group_runs
from mimex.train.novelty import NoveltyMap, write_record
from mimex.train.planes import FIRST_STATES, PrincipalPlane

HERE, THERE = (0.51, 0.01, 0.51), (0.01, -0.59, 0.01)


def visited(found):
    bits = np.unpackbits(np.frombuffer(base64.b64decode(found["cells"]), np.uint8))
    return np.flatnonzero(bits).tolist()


def test_maps_add_up_the_seeds_stage_by_stage(tmp_path, write_run, write_maps):
    write_maps(write_run("a"), [(100, HERE, 1.0), (600, THERE, 4.0)])
    write_maps(write_run("b", seed=1), [(100, HERE, 3.0), (600, THERE, 6.0)])
    write_run("none", bonus="none")
    maps, films = novelty(group_runs(find_runs([tmp_path / "runs"])))
    assert films == []
    [only] = maps  # of the method that recorded any
    assert (only["task"], only["method"]) == ("FrankaReach", "mimex")
    above = only["planes"][0]
    assert above["axes"] == ("x (m)", "y (m)")
    first, last = above["maps"]
    assert (first["until"], last["until"]) == (600 // STAGES, 600)
    assert visited(first) == [10 * 24 + 12]
    assert np.exp(unpacked(first["visits"])) == pytest.approx([2])
    assert unpacked(first["bonus"]) == pytest.approx([2.0])
    assert visited(last) == [0]
    assert unpacked(last["bonus"]) == pytest.approx([5.0])
    assert (first["coverage"], last["coverage"]) == (1 / 576, 2 / 576)


def test_maps_on_axes_of_their_own_are_not_added_up(tmp_path, write_run):
    rng = np.random.default_rng(0)
    for seed in range(2):
        states = NoveltyMap(PrincipalPlane())
        states.visit(rng.normal(size=(FIRST_STATES, 3)), np.ones(FIRST_STATES))
        write_record(write_run(f"r{seed}", seed=seed), 1000, states)
    [only], _ = novelty(group_runs(find_runs([tmp_path / "runs"])))
    [plane] = only["planes"]
    assert not plane["shared"]
    visits = np.exp(unpacked(plane["maps"][-1]["visits"])).round()
    assert visits.sum() == FIRST_STATES


def test_films_are_of_the_first_run_from_its_beginning_to_its_end(tmp_path, write_run, write_maps):
    film = {
        "kind": "first",
        "numbers": torch.tensor([0, 3]),
        "features": torch.arange(12.0).view(2, 3, 2),
        "prediction": torch.zeros(2, 3, 2),
        "hidden": torch.tensor([[True, False, True], [False, True, True]]),
        "reward": torch.tensor([0.5, 1.5]),
    }
    records = [(step, HERE, 1.0) for step in range(100, 1001, 100)]
    write_maps(write_run("a"), records, [film])
    write_maps(write_run("b", seed=1), records, [film])
    [found] = novelty(group_runs(find_runs([tmp_path / "runs"])))[1]
    assert found["run"] == "a"
    assert [moment["step"] for moment in found["moments"]] == [100, 300, 500, 600, 800, 1000]
    shown = found["moments"][0]["films"][0]
    assert shown["shape"] == [2, 3, 2]
    assert shown["hidden"] == [1, 0, 1, 0, 1, 1]
    np.testing.assert_allclose(unpacked(shown["features"]), np.arange(12), atol=1e-3)
