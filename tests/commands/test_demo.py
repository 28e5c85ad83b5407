"""What `mimex demo` checks before it trains; `tests/test_wheel.py` runs all of it."""

import sys

import pytest

from mimex.cli import main


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [("mujoco", ["--quick"], "envs"), ("imageio_ffmpeg", [], "video")],
)
def test_a_missing_package_is_reported_before_the_training(
    package, words, extra, monkeypatch, tmp_path, capsys
):
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["demo", *words, "--out", str(tmp_path / "demo")]) == 1
    assert f"pip install 'mimex[{extra}]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
