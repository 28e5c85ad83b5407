import json

import pytest

from mimex.cli import main

TINY = [
    *("--envs", "4", "--loop.rollout-steps", "8", "--loop.bonus-minibatch", "16"),
    *("--ppo.minibatches", "2", "--ppo.epochs", "1", "--eval.episodes", "2"),
    *("--world.episode-steps", "10", "--threads", "1"),
]


def test_without_a_command_the_commands_are_listed(capsys):
    assert main([]) == 2
    assert "train" in capsys.readouterr().out
    assert main(["--help"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trane"], "did you mean 'train'"),
        (["train", "FrankaReech"], "did you mean 'FrankaReach'"),
        (["train", "FrankaReach", "--preset", "papr"], "did you mean 'paper'"),
        (["train", "FrankaReach", "--bonus", "ring"], "--bonus is 'ring', but must be one of"),
        (["eval", "nowhere"], "nowhere is no run folder"),
        (["play", "FrankaReach"], "add --expert"),
        (["play", "nothing"], "neither a run folder nor"),
        (["play", "FrankaRech", "--expert"], "did you mean 'FrankaReach'"),
    ],
)
def test_a_mistake_is_answered_in_one_line(arguments, words, capsys):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1


def test_an_unknown_flag_is_answered_with_the_nearest(capsys):
    with pytest.raises(SystemExit):
        main(["train", "FrankaReach", "--ppo.epoch", "3"])
    assert "--ppo.epochs" in capsys.readouterr().err


def test_envs_lists_the_eight_tasks(capsys):
    assert main(["envs"]) == 0
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if "FrankaCabinet" in line)
    assert [cell.strip() for cell in row.split("│")][2:6] == ["500", "1000", "9", "34"]
    assert text.count("Kuka") == 4


@pytest.mark.parametrize("bonus", ["none", "mimex", "rnd", "icm", "pseudocount"])
def test_a_tiny_run_trains_and_is_evaluated(bonus, tmp_path, capsys):
    run = tmp_path / "run"
    command = ["train", "FrankaReach", "--bonus", bonus, "--steps", "96", "--out", str(run), *TINY]
    assert main(command) == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [64, 96]
    assert "eval/success" in rows[-1]
    assert (rows[-1]["bonus/mean"] > 0) == (bonus != "none")
    assert json.loads((run / "config.json").read_text())["bonus"] == bonus
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "3"]) == 0
    assert "of 3 episodes" in capsys.readouterr().out


def test_another_config_on_the_same_folder_is_refused_with_the_difference(tmp_path, capsys):
    command = ["train", "FrankaReach", "--steps", "64", "--out", str(tmp_path / "run"), *TINY]
    assert main(command) == 0
    assert main([*command, "--ppo.clip", "0.3"]) == 1
    assert "ppo.clip: 0.1 there, 0.3 now" in capsys.readouterr().err


@pytest.mark.render
def test_play_writes_a_video_of_a_run(tmp_path):
    run = tmp_path / "run"
    assert main(["train", "FrankaReach", "--steps", "64", "--out", str(run), *TINY]) == 0
    assert main(["play", str(run)]) == 0
    assert (run / "videos" / "play.mp4").stat().st_size > 1000
