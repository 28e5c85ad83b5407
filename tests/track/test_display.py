"""Progress is live on a terminal and plain lines elsewhere."""

from __future__ import annotations

import io
import os
import re
import time
from contextlib import redirect_stdout

import pytest
from rich.console import Console

from mimex.track.display import Display, Output

METRICS = {"train/success": 0.25, "train/return": 12.3456, "bonus/mean": 1e-3, "ppo/std": 0.9}


def screen(terminal: bool) -> tuple[io.StringIO, Console]:
    output = io.StringIO()
    return output, Console(file=output, force_terminal=terminal, width=80, _environ={})


def test_without_a_terminal_there_are_plain_lines_with_the_headlines():
    output, console = screen(terminal=False)
    with Display(1000, "FrankaReach [mimex]", plain_every=0, console=console) as display:
        time.sleep(0.01)
        display.update(250, METRICS)
        display.note("saved [1]")
        display.update(500, {"train/success": 0.5})
    lines = output.getvalue().splitlines()
    assert lines[0] == "FrankaReach [mimex]"
    assert re.fullmatch(
        r" 25% 250 of 1,000 steps, [\d,]+ steps/s, 0:00:\d\d left \| train/success 0\.25 \| "
        r"train/return 12\.35 \| bonus/mean 0\.001",
        lines[1],
    )
    assert lines[2] == "saved [1]"
    assert "train/success 0.5 | train/return 12.35" in lines[3]
    assert len(lines) == 4
    assert "\x1b" not in output.getvalue()


def test_plain_lines_are_few_and_the_last_update_is_always_printed():
    output, console = screen(terminal=False)
    with Display(1000, "x", plain_every=3600, console=console) as display:
        for step in range(100, 1001, 100):
            display.update(step, METRICS)
    lines = output.getvalue().splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["100", "1,000"]


def test_the_last_rollout_may_go_beyond_the_end():
    output, console = screen(terminal=False)
    with Display(1000, "x", console=console) as display:
        display.update(1024, {})
    assert output.getvalue().splitlines()[1].startswith("100% 1,024 of 1,000 steps")


def test_a_terminal_shows_the_bar_the_pace_and_every_metric():
    output, console = screen(terminal=True)
    with Display(1000, "FrankaReach", console=console) as display:
        display.update(400, METRICS | {"time/steps_per_second": 123.0})
        display.note("saved a checkpoint")
        display.update(500, {"train/success": 0.75})
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.getvalue())
    last = shown[shown.rindex("FrankaReach") :]
    assert "50%" in last
    assert "500 of 1,000 steps" in last
    for words in ("success 0.75", "return 12.35", "mean 0.001", "std 0.9"):
        assert words in re.sub(" +", " ", last)
    assert "steps_per_second" not in shown
    assert "saved a checkpoint" in shown
    assert output.getvalue().endswith("\x1b[?25h")  # the cursor is given back


def test_the_terminal_is_given_back_after_an_error():
    output, console = screen(terminal=True)
    display = Display(10, "x", console=console)
    with pytest.raises(KeyboardInterrupt), display:
        raise KeyboardInterrupt
    assert "\x1b[?25h" in output.getvalue()


def test_the_pace_of_a_continued_run_counts_its_own_steps_only():
    output, console = screen(terminal=False)
    with Display(10_000, "x", start_step=9_000, console=console) as display:
        time.sleep(0.1)
        display.update(9_100, {})
    found = re.search(r"([\d,]+) steps/s", output.getvalue())
    assert found is not None
    assert float(found[1].replace(",", "")) <= 1000  # 100 steps in at least 0.1 s


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves by hand."""
    now = [1000.0]
    monkeypatch.setattr("mimex.track.display.time.monotonic", lambda: now[0])

    def wait(seconds: float) -> None:
        now[0] += seconds

    return wait


def test_between_updates_a_quiet_log_gets_a_line_a_minute(clock):
    output, console = screen(terminal=False)
    with Display(1000, "x", unit="frames", console=console) as display:
        for step in range(1, 131):
            clock(1)
            display.advance(step, "evaluating" if step > 100 else "")
    assert output.getvalue().splitlines() == [
        "x",
        "  6% 60 of 1,000 frames, 1.0 frames/s, 0:15:40 left",
        " 12% 120 of 1,000 frames, 1.0 frames/s, 0:14:40 left, evaluating",
    ]


def test_the_bar_moves_between_updates_and_ends_where_the_work_did(clock):
    output, console = screen(terminal=True)
    with Display(8, "x", console=console) as display:
        for _ in display.track("abcd"):
            clock(0.2)  # the last comes sooner than anything would be shown again
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.getvalue())
    last = shown[shown.rindex("x ") :]
    assert "50%" in last
    assert "4 of 8 steps, 5.0 steps/s, 0:00:01 left" in last


def test_the_pace_forgets_a_beginning_that_was_faster(clock):
    output, console = screen(terminal=False)
    with Display(10_000, "x", console=console) as display:
        clock(10)
        display.update(1_000, {})  # 100 steps a second
        for step in range(1_001, 1_681):
            clock(1)
            display.advance(step)
    lines = output.getvalue().splitlines()
    assert "1,660 of 10,000 steps, 1.0 steps/s, 2:19:00 left" in lines[-1]


def test_the_pace_of_a_long_run_holds_its_evaluations(clock):
    output, console = screen(terminal=False)
    with Display(100_000, "x", console=console) as display:
        for step in range(1, 1_001):
            clock(10)
            display.update(step, {})
            if step % 10 == 0:
                clock(100)  # to evaluate takes as long as the ten steps before it
    assert "0.1 steps/s" in output.getvalue().splitlines()[-1]
    left = re.search(r"(\d+) days", output.getvalue().splitlines()[-1])
    assert left is not None
    assert 19 <= int(left[1]) <= 23  # 99,000 steps of 20 s each are 22.9 days


def test_a_title_is_shown_as_it_is_written():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200)
    with Display(10, "run -> runs/[/x]", console=console) as display:
        display.update(1, {"train/[/y]": 1.0})
    assert "runs/[/x]" in out.getvalue()


def test_words_to_a_closed_pipe_are_lost_and_nothing_else(capsys):
    listen, tell = os.pipe()
    os.close(listen)
    with os.fdopen(tell, "w") as pipe, redirect_stdout(Output(pipe)):
        with Display(1000, "x", plain_every=0, console=Console(force_terminal=False)) as display:
            display.update(10, METRICS)
            print("more", flush=True)
        assert not pipe.isatty()
    assert capsys.readouterr().err.count("standard output cannot be written (Broken pipe)") == 1
