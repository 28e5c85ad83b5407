"""Videos hold the frames, and appear whole or not at all."""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import pytest

from mimex.track.video import write_video

imageio = pytest.importorskip("imageio.v2")
pytest.importorskip("imageio_ffmpeg")


def frames(count: int, height: int, width: int) -> np.ndarray:
    """Grey frames, each brighter than the one before, with a red left half."""
    video = np.zeros((count, height, width, 3), np.uint8)
    video += np.linspace(40, 200, count).astype(np.uint8)[:, None, None, None]
    video[:, :, : width // 2] = (200, 0, 0)
    return video


@pytest.mark.parametrize(("height", "width"), [(64, 84), (33, 47)])
def test_the_frames_come_back_in_order_and_colour(tmp_path, height, width):
    path = tmp_path / "videos" / "x.mp4"
    written = frames(12, height, width)
    write_video(path, (frame for frame in written), fps=30)
    with imageio.get_reader(path) as reader:
        assert reader.get_meta_data()["fps"] == 30
    read = np.stack(imageio.mimread(path))
    assert read.shape == (12, height + height % 2, width + width % 2, 3)
    # Compression blurs the border of the halves: compare away from it.
    for columns in (slice(2, width // 2 - 4), slice(width // 2 + 4, width - 2)):
        difference = read[:, 2:30, columns].astype(int) - written[:, 2:30, columns]
        assert np.abs(difference).mean() < 6
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("video", "words"),
    [
        ([], "frames is empty"),
        (np.zeros((2, 8, 8, 3), np.float32), "float32"),
        (np.zeros((2, 3, 8, 8), np.uint8), r"\(3, 8, 8\)"),
        ([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 6, 3), np.uint8)], r"\(8, 6, 3\)"),
    ],
)
def test_wrong_frames_are_refused_and_leave_the_old_video(tmp_path, video, words):
    path = tmp_path / "x.mp4"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match=words):
        write_video(path, video, fps=30)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_settings_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'\.mp4'"):
        write_video(tmp_path / "x.gif", frames(2, 8, 8), fps=30)
    with pytest.raises(ValueError, match="fps=0"):
        write_video(tmp_path / "x.mp4", frames(2, 8, 8), fps=0)


def test_a_failing_encoder_is_reported_and_leaves_nothing(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (20, 64, 64, 3), dtype=np.uint8)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match="ffmpeg could not write"):
            write_video(tmp_path / "x.mp4", noise, fps=30)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_encoder_is_named_with_its_extra(tmp_path):
    script = (
        "import sys; sys.modules['imageio_ffmpeg'] = None\n"  # as if it were not installed
        "import numpy, pathlib; from mimex.track.video import write_video\n"
        "write_video(pathlib.Path('x.mp4'), numpy.zeros((1, 8, 8, 3), numpy.uint8), 30)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "writing videos needs imageio_ffmpeg" in ended.stderr
    assert "pip install 'mimex[video]'" in ended.stderr
