import json

import pytest

from mimex.cli import main


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "reach"
    folder.mkdir()
    (folder / "config.json").write_text('{"task": "FrankaReach", "bonus": "rnd", "steps": 2}')
    rows = [{"step": step, "eval/success": step / 2} for step in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "videos").mkdir()
    (folder / "videos" / "play.mp4").write_bytes(bytes(300_000))
    return folder


def test_a_report_is_written_and_told(run_folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", str(run_folder), "-o", str(out), "--title", "My runs"]) == 0
    assert "<h1>My runs</h1>" in out.read_text()
    assert capsys.readouterr().out == f"{out}: 1 runs, {out.stat().st_size / 1e6:.1f} MB\n"


def test_what_there_was_no_room_for_is_named(run_folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    main(["report", str(run_folder), "-o", str(out), "--video-mb", "0.1"])
    assert "reach/videos/play.mp4 (0.3 MB)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{tmp}/nothing"], "nothing does not exist"),
        (["{tmp}/reach", "-o", "{tmp}"], "is a folder"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments, words, run_folder, tmp_path, capsys):
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    assert main(["report", *arguments]) != 0
    assert words in capsys.readouterr().err
