"""Whole runs in processes of their own: killed, stopped, resumed, broken."""

import json
import math
import os
import shlex
import signal
import subprocess
import sys
from functools import partial

import pytest
import torch
from tests.processes import PATIENCE, assert_equal, rows, start, start_new, wait_for_rows
from tests.test_cli import TINY

from mimex import MIMEx, Window
from mimex.cli import main
from mimex.config import TrainConfig
from mimex.nn.parallel import use_workers
from mimex.nn.vit import ViT, save_encoder
from mimex.study.runs import load_run
from mimex.train.checkpoint import Checkpoints, load

ENVS, STEPS = 4, 8
A_ROLLOUT = ENVS * STEPS


def command(run, updates, *more):
    """A small run of so many updates after the warm-up, saved every third."""
    return [
        *("train", "FrankaReach", "--out", str(run), "--bonus", "mimex"),
        *("--steps", str((updates + 1) * A_ROLLOUT), "--envs", str(ENVS)),
        *("--loop.rollout-steps", str(STEPS), "--ppo.epochs", "2", "--ppo.minibatches", "2"),
        *("--loop.bonus-minibatch", "16", "--world.episode-steps", "13", "--threads", "1"),
        *("--track.checkpoint-every", str(3 * A_ROLLOUT)),
        *("--eval.every", str(10 * A_ROLLOUT), "--eval.episodes", "2"),
        *more,
    ]


def compare_killed_with_undisturbed(tmp_path, updates, kills, start=start):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert main(command(straight, updates)) == 0
    for count in kills:
        process = start(command(killed, updates))
        wait_for_rows(process, killed, count)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert main(command(killed, updates)) == 0
    assert rows(killed) == rows(straight)
    (step, expected), (same_step, found) = (
        Checkpoints(run / "checkpoints").latest() for run in (straight, killed)
    )
    assert step == same_step
    assert_equal(found, expected)


def test_a_killed_run_ends_as_if_undisturbed(tmp_path):
    compare_killed_with_undisturbed(tmp_path, updates=24, kills=[4, 9, 17])


def test_what_a_process_did_before_changes_no_number_of_a_run(tmp_path):
    """The killed half runs in a fresh process, the rest in this one, which has meanwhile used
    bonuses of other shapes, on other threads, with and without gradients."""
    generator = torch.Generator().manual_seed(0)
    for masks, length, feature_dim in ((1, 5, 27), (5, 4, 27), (2, 6, 3)):
        bonus = MIMEx(feature_dim, length=length, masks=masks)
        window = Window(
            torch.randn(300, length, feature_dim, generator=generator),
            torch.ones(300, length, dtype=torch.bool),
        )
        for workers in (2, None, 1):
            use_workers(workers)
            bonus.learn(window)
            bonus.reward(window)
    use_workers(None)
    compare_killed_with_undisturbed(tmp_path, updates=12, kills=[5], start=start_new)


def test_a_run_that_is_prolonged_keeps_the_schedule_that_it_began_with(tmp_path):
    schedule = ("--ppo.lr-schedule", "constant", "--scale.schedule", "linear")
    straight, prolonged = tmp_path / "straight", tmp_path / "prolonged"
    horizon = str(10 * A_ROLLOUT)
    assert main(command(straight, 12, *schedule, "--horizon", horizon)) == 0
    assert main(command(prolonged, 9, *schedule)) == 0
    assert main(command(prolonged, 12, *schedule)) == 0
    found, expected = ([[row["step"], row["bonus/beta"]] for row in rows(r)]
                       for r in (prolonged, straight))  # fmt: skip
    assert found == expected
    assert found[-1][1] == 0.0
    assert json.loads((prolonged / "config.json").read_text())["horizon"] == 10 * A_ROLLOUT


def test_a_run_whose_learning_rate_has_fallen_to_0_is_prolonged_with_a_new_horizon(
    tmp_path, capsys
):
    run, cosine = tmp_path / "run", ("--ppo.lr-schedule", "cosine")
    assert main(command(run, 3, *cosine)) == 0
    before = (run / "metrics.jsonl").read_bytes(), (run / "config.json").read_bytes()
    capsys.readouterr()
    assert main(command(run, 7, *cosine)) == 1
    error = capsys.readouterr().err
    assert f"--steps is {8 * A_ROLLOUT}" in error
    assert f"0 over the {4 * A_ROLLOUT} steps" in error
    assert f"--horizon {8 * A_ROLLOUT}" in error
    assert ((run / "metrics.jsonl").read_bytes(), (run / "config.json").read_bytes()) == before
    assert main(command(run, 7, *cosine, "--horizon", str(8 * A_ROLLOUT))) == 0
    said = capsys.readouterr()
    assert f"a horizon of {8 * A_ROLLOUT} instead of {4 * A_ROLLOUT}" in said.out + said.err
    last = rows(run)[-1]
    assert last["ppo/lr"] == pytest.approx(1e-3 * 0.5 * (1 + math.cos(math.pi * 7 / 8)))
    assert main(command(run, 7, *cosine)) == 0  # the new one is the run's own


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_saves_and_continues(tmp_path, number):
    run = tmp_path / "run"
    process = start(command(run, 100_000))
    wait_for_rows(process, run, 2)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "the same command resumes" in output
    reached = rows(run)[-1]["step"]
    assert Checkpoints(run / "checkpoints").latest()[0] == reached
    assert main(command(run, reached // A_ROLLOUT + 1)) == 0  # --steps may change
    assert rows(run)[-1]["step"] > reached


@pytest.mark.parametrize("module", ["numpy", "torch"])
def test_ctrl_c_during_imports_is_reported_in_one_line(tmp_path, module):
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "mimex.cli", *command(tmp_path / "run", 1)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore it, and so would their children.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    while f" {module}." not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said = [line for line in process.stderr if not line.startswith("import time:")]
    assert process.wait(PATIENCE) == 128 + signal.SIGINT
    assert said == ["mimex: interrupted; what was saved is intact\n"]
    assert not (tmp_path / "run").exists()


def test_a_second_ctrl_c_ends_at_once_and_in_a_line(tmp_path, monkeypatch, capsys):
    straight, run = tmp_path / "straight", tmp_path / "run"

    def interrupted(*_, **__):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr("mimex.train.runner.evaluate", interrupted)
        assert main(command(run, 12)) == 128 + signal.SIGINT
    assert capsys.readouterr().err == "mimex: interrupted; what was saved is intact\n"
    assert main(command(run, 12)) == main(command(straight, 12)) == 0
    assert rows(run) == rows(straight)


def test_a_stopped_evaluation_is_made_by_the_run_that_continues(tmp_path, stops_in_evaluation):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert main(command(straight, 12)) == 0
    stops_in_evaluation(1)
    assert main(command(stopped, 12)) == 128 + signal.SIGTERM
    assert Checkpoints(stopped / "checkpoints").latest()[0] == 10 * A_ROLLOUT
    assert rows(stopped)[-1]["step"] == 9 * A_ROLLOUT
    assert main(command(stopped, 12)) == 0
    assert rows(stopped) == rows(straight)


@pytest.mark.parametrize("output", ["closed", "full", "none"])
def test_an_output_that_cannot_be_written_does_not_end_a_run(tmp_path, output):
    """As of `mimex train ... | head -1`, `> /dev/full` and `>&-`."""
    run = tmp_path / "run"
    shell = {"closed": "", "full": " > /dev/full", "none": " >&-"}[output]
    words = [sys.executable, "-m", "mimex.cli", *command(run, 3)]
    process = subprocess.Popen(
        ["sh", "-c", f"exec {shlex.join(words)}{shell}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if output == "closed":
        assert "FrankaReach" in process.stdout.readline()
        process.stdout.close()
    said = process.stderr.read()
    assert process.wait(PATIENCE) == 0, said
    assert len(rows(run)) == 3
    assert Checkpoints(run / "checkpoints").latest()[0] == 4 * A_ROLLOUT
    assert said.count("standard output cannot be written") == (output != "none"), said
    assert "Traceback" not in said
    assert "ignored" not in said


def test_a_folder_in_use_is_refused(tmp_path, capsys):
    run = tmp_path / "run"
    process = start(command(run, 100_000))
    try:
        wait_for_rows(process, run, 1)
        assert main(command(run, 100_000)) == 1
        assert f"in use by another run (process {process.pid})" in capsys.readouterr().err
    finally:
        process.kill()
        process.communicate()


def test_values_that_are_not_finite_stop_the_run_and_are_saved(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(command(run, 50, "--ppo.lr", "1e30")) == 1
    error = capsys.readouterr().err
    number = len(rows(run)) + 1
    assert f"update {number}" in error
    assert "failed.safetensors" in error
    evidence = load(run / "failed.safetensors")
    assert evidence["update"] == number
    assert evidence["rollout"]["actions"].shape == (STEPS, ENVS, 9)
    assert set(evidence["state"]) >= {"agent", "callbacks", "environment"}
    assert set(evidence["state"]["agent"]) >= {"algorithm", "bonus", "scale"}


def test_a_damaged_checkpoint_is_skipped(tmp_path, caplog):
    run = tmp_path / "run"
    assert main(command(run, 6)) == 0
    newest = max((run / "checkpoints").glob("step_*"))
    newest.write_bytes(newest.read_bytes()[:-10])
    before = rows(run)
    assert main(command(run, 6)) == 0
    assert "Falling back" in caplog.text
    assert rows(run) == before  # made again, the same


def test_a_finished_run_stays_as_it_is(tmp_path):
    run = tmp_path / "run"
    assert main(command(run, 2)) == 0
    before = (run / "metrics.jsonl").read_bytes()
    assert main(command(run, 2)) == 0
    assert (run / "metrics.jsonl").read_bytes() == before


def test_the_configuration_can_be_read_back(tmp_path):
    run = tmp_path / "run"
    assert main(command(run, 1)) == 0
    saved = TrainConfig.from_dict(json.loads((run / "config.json").read_text()))
    assert (saved.bonus, saved.envs, saved.out) == ("mimex", ENVS, run)


@pytest.mark.parametrize("bonus", ["disagreement", "e3b"])
def test_a_bonus_that_is_named_trains(tmp_path, bonus):
    assert main(command(tmp_path, 3, "--bonus", bonus)) == 0
    assert all(row["bonus/mean"] > 0 for row in rows(tmp_path))
    assert TrainConfig.from_dict(json.loads((tmp_path / "config.json").read_text())).bonus == bonus


def test_a_run_from_before_there_were_some_settings_is_continued(tmp_path):
    assert main(command(tmp_path, 2)) == 0
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["e3b"], config["disagreement"]
    path.write_text(json.dumps(config))
    assert main(command(tmp_path, 3)) == 0
    assert main(command(tmp_path, 4, "--e3b.ridge", "0.2")) == 1  # not what it had


def test_a_curriculum_is_trained_evaluated_by_its_last_reward_and_continued(tmp_path):
    stages = ("--curriculum", "dense", "sparse", "sparser", "--curriculum-success", "0.5")
    assert main(command(tmp_path, 2, *stages)) == 0
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["reward"], config["curriculum"]) == ("sparser", ["dense", "sparse", "sparser"])
    _, state = Checkpoints(tmp_path / "checkpoints").latest()
    assert state["callbacks"]["curriculum"]["stage"] == 0
    assert state["environment"]["weights"]["goal_distance"] > 0  # dense, though evaluated sparser
    assert main(command(tmp_path, 4, *stages)) == 0
    assert [row["train/stage"] for row in rows(tmp_path)] == [0.0] * 4
    assert main(command(tmp_path, 5, *stages[:-1], "0.6")) == 1  # not what it began with


def test_a_run_without_any_reward_gives_up_and_stays_so(tmp_path):
    never = ("--world.terms", "goal_bonus=0", "--futility", "0.5")
    assert main(command(tmp_path, 9, *never)) == 0
    found = rows(tmp_path)
    assert found[-1]["step"] == 5 * A_ROLLOUT
    assert found[-1]["train/gave_up"] == 1.0
    assert found[-1]["eval/success"] == 0.0
    assert load_run(tmp_path).finished
    assert main(command(tmp_path, 9, *never)) == 0  # the same command makes no more steps
    assert rows(tmp_path) == found


def test_a_run_that_was_rewarded_does_not_give_up(tmp_path):
    always = ("--world.terms", "goal_distance=1", "--futility", "0.5")
    assert main(command(tmp_path, 9, *always)) == 0
    assert rows(tmp_path)[-1]["step"] == 10 * A_ROLLOUT


@pytest.mark.render
def test_from_pixels_the_papers_preset_runs_with_the_shipped_encoder(tmp_path, monkeypatch, capsys):
    shipped, run = tmp_path / "shipped.safetensors", tmp_path / "run"
    monkeypatch.setattr("mimex.agents.encoders.SHIPPED", shipped)
    words = ["train", "FrankaReach", "--preset", "paper", "--observation", "pixels", *TINY]
    words += ["--bonus", "mimex", "--steps", "64", "--out", str(run)]
    assert main(words) == 1
    assert "train one with `mimex pretrain --out FOLDER`" in capsys.readouterr().err
    assert not (run / "config.json").exists()
    save_encoder(shipped, ViT(48, heads=3, width=24, depth=1, patch=8))
    assert main(words) == 0
    assert "image encoder: the ViT shipped with mimex (48 pixels)" in capsys.readouterr().out
    vision = json.loads((run / "config.json").read_text())["vision"]
    assert (vision["image_size"], vision["heads"]) == (48, 3)
    assert main(words) == 0  # the same command is the same run
    assert main(["eval", str(run), "--episodes", "2"]) == 0
    save_encoder(shipped, ViT(48, heads=3, width=24, depth=1, patch=8))  # another one
    capsys.readouterr()
    assert main(words) == 1
    assert "vision.sha256" in capsys.readouterr().err
    assert main(["eval", str(run), "--episodes", "2"]) == 1
    assert "holds other weights" in capsys.readouterr().err
