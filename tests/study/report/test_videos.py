import base64

from mimex.study.report.videos import videos
from mimex.study.runs import find_runs, group_runs


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
