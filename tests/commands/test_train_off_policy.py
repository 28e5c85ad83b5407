"""Whole off-policy runs in processes of their own: killed, stopped, resumed, broken."""

import json
import shutil
import signal

import pytest
from tests.processes import assert_equal, rows, start, wait_for_rows

from mimex.cli import main
from mimex.data.replay_log import free_memory
from mimex.train.checkpoint import Checkpoints, load

REPEAT = 50  # frames a step, of an episode's 1,000
ROW = 5 * REPEAT


def command(run, rows, *more, task="cartpole_swingup", observation="state", bonus="mimex"):
    """A small run of so many rows of metrics, saved every third."""
    return [
        *("train", f"dmc/{task}", "--observation", observation, "--bonus", bonus),
        *("--out", str(run), "--steps", str(rows * ROW), "--off-policy.report-every", str(ROW)),
        *("--suite.action-repeat", str(REPEAT), "--drqv2.seed-steps", "12"),
        *("--drqv2.random-steps", "8", "--drqv2.batch", "8", "--drqv2.hidden", "16"),
        *("--track.checkpoint-every", str(3 * ROW), "--threads", "1"),
        *("--eval.every", str(7 * ROW), "--eval.episodes", "1"),
        *more,
    ]


def pixels(run, rows, *more):
    """The same from small pictures of three frames."""
    small = ("--suite.image-size", "36", "--suite.quality", "fast")
    return command(run, rows, *small, *more, observation="pixels")


def assert_same_runs(found, expected):
    assert rows(found) == rows(expected)
    (step, state), (same_step, same_state) = (
        Checkpoints(run / "checkpoints").latest() for run in (found, expected)
    )
    assert step == same_step
    assert_equal(state, same_state)
    records = [sorted((run / "novelty").glob("*")) for run in (found, expected)]
    assert [path.name for path in records[0]] == [path.name for path in records[1]]
    for pair in zip(*records, strict=True):
        assert_equal(*map(load, pair))


def kill(arguments, run, count):
    process = start(arguments)
    wait_for_rows(process, run, count)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("make", [command, pytest.param(pixels, marks=pytest.mark.render)])
def test_a_killed_run_ends_as_if_undisturbed(tmp_path, make):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert main(make(straight, 10)) == 0
    kill(make(killed, 10), killed, 5)
    assert main(make(killed, 10)) == 0
    assert_same_runs(killed, straight)


@pytest.mark.slow
@pytest.mark.render
def test_published_pixels_survive_kills_before_and_after_the_ring_has_gone_round(tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    more = ("--replay.capacity", "50", "--suite.quality", "published", "--replay.memory-mapped")
    assert main(pixels(straight, 16, *more)) == 0
    for count in (5, 12):
        kill(pixels(killed, 16, *more), killed, count)
    assert main(pixels(killed, 16, *more)) == 0
    assert_same_runs(killed, straight)


def test_a_stopped_run_saves_within_a_row_and_continues_as_if_undisturbed(tmp_path):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    more = ("--off-policy.report-every", str(60 * REPEAT), "--drqv2.seed-steps", "1")
    total = 200 * REPEAT // ROW
    assert main(command(straight, total, *more)) == 0
    process = start(command(stopped, total, *more))
    wait_for_rows(process, stopped, 1)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "the same command resumes" in output
    assert main(command(stopped, total, *more)) == 0
    assert rows(stopped) == rows(straight)


def test_a_stopped_evaluation_is_made_by_the_run_that_continues(tmp_path, stops_in_evaluation):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert main(command(straight, 10)) == 0
    for number, evaluated_at in ((1, 7), (2, 10)):  # the second command makes the first's again
        stops_in_evaluation(number)
        assert main(command(stopped, 10)) == 128 + signal.SIGTERM
        assert Checkpoints(stopped / "checkpoints").latest()[0] == evaluated_at * ROW
        assert rows(stopped)[-1]["step"] == (evaluated_at - 1) * ROW
    assert main(command(stopped, 10)) == 0
    assert_same_runs(stopped, straight)


def test_a_run_may_be_made_longer(tmp_path):
    short, long = tmp_path / "short", tmp_path / "long"
    assert main(command(short, 6)) == 0
    assert main(command(short, 12)) == 0
    assert main(command(long, 12)) == 0
    assert rows(short)[-1]["drqv2/critic_loss"] == rows(long)[-1]["drqv2/critic_loss"]


def test_a_damaged_checkpoint_is_skipped(tmp_path, caplog):
    run = tmp_path / "run"
    assert main(command(run, 8)) == 0
    newest = max((run / "checkpoints").glob("step_*"))
    newest.write_bytes(newest.read_bytes()[:-10])
    before = rows(run)
    assert main(command(run, 8)) == 0
    assert "Falling back" in caplog.text
    assert rows(run) == before  # made again, the same


def test_a_run_without_a_saved_buffer_continues_with_a_new_one(tmp_path):
    run = tmp_path / "run"
    assert main(command(run, 6, "--replay.no-save")) == 0
    assert not (run / "replay").exists()
    assert main(command(run, 12, "--replay.no-save")) == 0
    last = rows(run)[-1]
    assert last["step"] == 12 * ROW
    assert last["train/episode_steps"] == 1000 / REPEAT  # nothing of the one that was cut off


def test_a_damaged_buffer_is_reported_with_a_remedy(tmp_path, capsys, caplog):
    run = tmp_path / "run"
    assert main(command(run, 6)) == 0
    path = min((run / "replay").glob("*"))
    path.write_bytes(path.read_bytes()[:-10])
    assert main(command(run, 8)) == 1
    error = capsys.readouterr().err
    assert f"remove the folder {run / 'replay'} to continue" in error
    assert error.count("\n") == 1
    shutil.rmtree(run / "replay")
    assert main(command(run, 8)) == 0
    assert "continuing with an empty buffer" in caplog.text
    assert [row["step"] for row in rows(run)] == [(i + 1) * ROW for i in range(8)]
    assert main(command(run, 9)) == 0  # the new buffer is saved


def test_values_that_are_not_finite_stop_the_run_and_are_saved(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(command(run, 50, "--drqv2.lr", "1e30")) == 1
    error = capsys.readouterr().err
    assert "failed.safetensors" in error
    evidence = load(run / "failed.safetensors")
    assert f"update {evidence['update']}" in error
    assert evidence["minibatch"]["observations"].shape == (8, 5)
    assert set(evidence["state"]) >= {"agent", "callbacks", "environment"}
    assert set(evidence["state"]["agent"]) >= {"algorithm", "bonus", "replay"}


def test_a_buffer_larger_than_memory_is_refused_before_anything_is_written(tmp_path, capsys):
    run = tmp_path / "run"
    wanted = str(2 * free_memory() // (3 * 84 * 84))
    arguments = ["train", "dmc/cartpole_balance", "--observation", "pixels", "--out", str(run)]
    assert main([*arguments, "--replay.capacity", wanted, "--steps", f"{wanted}0"]) == 1
    error = capsys.readouterr().err
    assert "GB of memory are free" in error
    assert "--replay.memory-mapped" in error
    assert not (run / "config.json").exists()


@pytest.mark.parametrize("bonus", ["none", "mimex", "rnd", "icm", "pseudocount"])
def test_every_bonus_trains_and_the_run_is_evaluated(bonus, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(command(run, 4, bonus=bonus)) == 0
    last = rows(run)[-1]
    assert last["step"] == 4 * ROW
    assert ("bonus/mean" in last) == (bonus != "none")
    assert "eval/return" in last
    assert "eval/success" not in last
    config = json.loads((run / "config.json").read_text())
    assert (config["agent"], config["suite"]["quality"]) == ("drqv2", "published")
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "2"]) == 0
    said = capsys.readouterr()
    assert "over 2 episodes of 20 steps" in said.out
    assert "success" not in said.out
    assert said.err.startswith("2 episodes of dmc/")  # progress does not mix with the answer


@pytest.mark.render
def test_play_writes_a_video_of_a_pixel_run(tmp_path):
    run = tmp_path / "run"
    assert main(pixels(run, 4)) == 0
    video = run / "videos" / "play.mp4"
    assert main(["play", str(run), "--video", str(video)]) == 0
    assert video.stat().st_size > 1000
