import base64

import numpy as np
import pytest
import torch
from tests.study.report.unpack import unpacked

from mimex.study.groups import group_runs
from mimex.study.report.media import STAGES, novelty, videos
from mimex.study.runs import find_runs
from mimex.train.coverage import FIRST_STATES, PrincipalPlane
from mimex.train.novelty import NoveltyMap, write_record

HERE, THERE = (0.51, 0.01, 0.51), (0.01, -0.59, 0.01)


def visited(found):
    bits = np.unpackbits(np.frombuffer(base64.b64decode(found["cells"]), np.uint8))
    return np.flatnonzero(bits).tolist()


def test_maps_add_up_the_seeds_stage_by_stage(tmp_path, write_run, write_maps):
    write_maps(write_run("a"), [(100, HERE, 1.0), (600, THERE, 4.0)])
    write_maps(write_run("b", seed=1), [(100, HERE, 3.0), (600, THERE, 6.0)])
    write_run("none", bonus="none")
    maps, reconstructions = novelty(group_runs(find_runs([tmp_path / "runs"])))
    assert reconstructions == []
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


def test_reconstructions_are_of_the_first_run_from_its_beginning_to_its_end(
    tmp_path, write_run, write_maps
):
    batch = {
        "kind": "first",
        "numbers": torch.tensor([0, 3]),
        "features": torch.arange(12.0).view(2, 3, 2),
        "prediction": torch.zeros(2, 3, 2),
        "hidden": torch.tensor([[True, False, True], [False, True, True]]),
        "reward": torch.tensor([0.5, 1.5]),
    }
    records = [(step, HERE, 1.0) for step in range(100, 1001, 100)]
    write_maps(write_run("a"), records, [batch])
    write_maps(write_run("b", seed=1), records, [batch])
    [found] = novelty(group_runs(find_runs([tmp_path / "runs"])))[1]
    assert found["run"] == "a"
    assert [moment["step"] for moment in found["moments"]] == [100, 300, 500, 600, 800, 1000]
    shown = found["moments"][0]["batches"][0]
    assert shown["shape"] == [2, 3, 2]
    assert shown["masked"] == [1, 0, 1, 0, 1, 1]
    np.testing.assert_allclose(unpacked(shown["features"]), np.arange(12), atol=1e-3)


def test_every_method_gets_its_first_video_before_any_gets_two(tmp_path, write_run):
    for bonus in ("mimex", "none"):
        for seed in range(2):
            folder = write_run(f"{bonus}{seed}", bonus=bonus, seed=seed) / "videos"
            folder.mkdir()
            (folder / "play.mp4").write_bytes(f"{bonus}{seed}".encode() * 100_000)
    groups = group_runs(find_runs([tmp_path / "runs"]))
    taken, left_out = videos(groups, 1.2)
    assert [video["name"] for video in taken] == ["none0/play.mp4", "mimex0/play.mp4"]
    assert base64.b64decode(taken[0]["data"]) == b"none0" * 100_000
    assert sorted(left_out) == ["mimex1/videos/play.mp4 (0.6 MB)", "none1/videos/play.mp4 (0.5 MB)"]
    assert len(videos(groups, 10)[0]) == 4
    assert videos(groups, 0) == (
        [],
        [
            f"{n}/videos/play.mp4 (0.{s} MB)"
            for n, s in (("none0", 5), ("mimex0", 6), ("none1", 5), ("mimex1", 6))
        ],
    )
