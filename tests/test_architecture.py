"""What docs/architecture.md says of the package's shape."""

import sys
from pathlib import Path

import mimex
from mimex.cli import main
from mimex.track.sinks import Logger
from mimex.train.loop import Training

SOURCE = Path(mimex.__file__).parent
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
MOST_FILES, MOST_LINES = 35, 300


def test_few_files_lie_between_an_environments_step_and_metrics(tmp_path, monkeypatch):
    advance, log = Training.advance, Logger.log
    files, rows = set(), 0

    def note(frame, event, argument):
        if event == "call" and (path := Path(frame.f_code.co_filename)).is_relative_to(SOURCE):
            files.add(str(path.relative_to(SOURCE)))

    def noted_advance(*arguments):
        if rows == 1:  # the first row may be special
            sys.setprofile(note)
        return advance(*arguments)

    def noted_log(*arguments):
        nonlocal rows
        log(*arguments)
        sys.setprofile(None)
        rows += 1

    monkeypatch.setattr(Training, "advance", noted_advance)
    monkeypatch.setattr(Logger, "log", noted_log)
    command = ["train", "FrankaReach", "--bonus", "mimex", "--envs", "4", "--steps", "128"]
    small = ["--loop.rollout-steps", "8", "--ppo.minibatches", "2", "--world.episode-steps", "10"]
    few = ["--eval.episodes", "2", "--threads", "1", "--out", str(tmp_path)]
    assert main([*command, *small, *few]) == 0
    assert rows > 2
    expected = {"envs/manipulation.py", "bonus/mimex.py", "agents/ppo.py", "track/sinks.py"}
    assert expected <= files
    assert len(files) <= MOST_FILES, sorted(files)
    assert f"{MOST_FILES} files" in PAGE.read_text()


def test_no_file_is_long():
    lines = {path: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert [str(path) for path, count in lines.items() if count > MOST_LINES] == []
