"""`mimex demo --quick` goes through all that the demo does."""

import pytest

from mimex.cli import main


@pytest.mark.slow
def test_a_quick_demo_leaves_its_runs_and_curves_and_says_what_came_of_it(tmp_path, capsys):
    out = tmp_path / "demo"
    assert main(["demo", "--quick", "--out", str(out)]) == 0
    runs = {f"{task}-{bonus}" for task in ("car", "robot") for bonus in ("none", "mimex")}
    assert {path.name for path in out.iterdir()} == {*runs, "curves.png"}
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    text = capsys.readouterr().out
    assert "FrankaReachUp, PPO with MIMEx: success in " in text
    assert "of 16 episodes" in text
