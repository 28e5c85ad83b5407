import json
import os
import subprocess
import sys
from importlib.metadata import version

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


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mimex {version('mimex')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trane"], "did you mean 'train'"),
        (["train", "FrankaReech"], "did you mean 'FrankaReach'"),
        (["train", "FrankaReach", "--preset", "papr"], "did you mean 'paper'"),
        (["train", "FrankaReach", "--bonus", "ring"], "--bonus is 'ring', but must be one of"),
        (["eval", "nowhere"], "nowhere is not a run folder"),
        (["play", "FrankaReach"], "with --agent zero, random or expert"),
        (["play", "nothing"], "nothing is not a run folder"),
        (["play", "FrankaRech", "--agent", "expert"], "did you mean 'FrankaReach'"),
        (["play", "nothing", "--episodes", "-3"], "--episodes is -3"),
        (["train", "FrankaReach", "--out", ""], "--out is empty"),
        (["train", "FrankaReach", "--out="], "--out is empty"),
        (["train", "FrankaReach", "--curriculum", "dense", ""], "--curriculum is empty"),
        (["study", "show", "ablations", "--set", "rnd.normalize=a b"], "rnd.normalize"),
        (["study", "run", "difficulty", "--out", ""], "--out is empty"),
        (["report", ""], "an argument is empty"),
        (["train", "FrankaReach", "--mimex.lr", "inf"], "--mimex.lr is inf"),
        (["train", "FrankaReach", "--scale.beta", "nan"], "--scale.beta is nan"),
        (["train", "FrankaReach", "--scale.beta", "1e39"], "--scale.beta is 1e+39"),
        (["train", "FrankaReach", "--world.control-hz", "nan"], "--world.control-hz is nan"),
        (["train", "FrankaReach", "--rnd.hidden", f"{2**63}"], f"--rnd.hidden is {2**63}"),
        (["train", "FrankaReach", "--seed", f"{2**64}"], f"--seed is {2**64}"),
        (["train", "FrankaReach", "--bonus", "icm", "--icm.hidden", "0"], "hidden=0"),
        (["train", "FrankaReach", "--bonus", "rnd", "--rnd.hidden", "3", "0"], "hidden=(3, 0)"),
        (["train", "FrankaReach", "--out", "{tmp}/odd.py"], "odd.py is a file"),
        (["train", "FrankaReach", "--out", "{tmp}/odd.py/run"], "odd.py"),
        (["study", "show", "{tmp}"], "the plan is"),
        (["study", "show", "{tmp}/folder.toml"], "folder.toml is not a file"),
        (["report", "{tmp}/odd.py"], "odd.py has no run folder"),
        (["eval", "{tmp}/odd.py"], "odd.py"),
    ],
)
def test_a_mistake_is_answered_in_one_line(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.py").write_text("def setup(:\n")
    (tmp_path / "folder.toml").mkdir()
    assert main([argument.format(tmp=tmp_path) for argument in arguments]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.rglob("config.json"))  # what makes no run leaves no settings


@pytest.fixture
def nobody():
    """Root may write anywhere: for the length of a test, somebody else."""
    if root := os.geteuid() == 0:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


def test_what_may_not_be_written_is_named(tmp_path, capsys, request):
    (tmp_path / "closed").mkdir(mode=0o500)
    request.getfixturevalue("nobody")
    run = tmp_path / "closed" / "run"
    assert main(["train", "FrankaReach", "--out", str(run), *TINY]) == 1
    error = capsys.readouterr().err
    assert "Permission denied" in error
    assert str(run) in error


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied", "a/file"),
        IsADirectoryError(21, "Is a directory", "a/.writing-file", None, "a/file"),
        FileExistsError(17, "File exists", "a/file"),
    ],
)
def test_errors_of_the_system_name_the_file(error, monkeypatch, capsys):
    def fails(arguments):
        raise error

    monkeypatch.setattr("mimex.commands.report.run", fails)
    assert main(["report", "x"]) == 1
    assert capsys.readouterr().err == f"mimex: a/file: {error.strerror}\n"


@pytest.mark.parametrize("flag", ["--ppo.hidden", "--drqv2.hidden"])
def test_a_setting_that_means_nothing_is_named_by_the_command_line(flag, capsys):
    with pytest.raises(SystemExit):
        main(["train", "FrankaReach", flag, "0"])
    error = capsys.readouterr().err
    assert "hidden is" in error
    assert "Traceback" not in error


def test_an_unknown_flag_is_answered_with_the_nearest(capsys):
    with pytest.raises(SystemExit):
        main(["train", "FrankaReach", "--ppo.epoch", "3"])
    assert "--ppo.epochs" in capsys.readouterr().err


def test_envs_lists_the_eight_tasks_and_their_variants(capsys):
    assert main(["envs"]) == 0
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if "FrankaCabinet" in line)
    assert [cell.strip() for cell in row.split("│")][2:6] == ["500", "1000", "9", "34"]
    assert text.count("Kuka") == 4 + 1
    variant = next(line for line in text.splitlines() if "KukaReachLeft" in line)
    assert [cell.strip() for cell in variant.split("│")][2:4] == ["100", "100"]


def test_envs_lists_the_tasks_without_mujoco():
    code = "import sys; sys.modules['mujoco'] = None; from mimex.cli import main; main(['envs'])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert run.stdout.count("Kuka") == 4 + 1
    assert "cartpole" in run.stdout
    assert "pip install 'mimex[envs]'" in " ".join(run.stdout.split())


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
    assert "ppo.clip: 0.2 there, 0.3 now" in capsys.readouterr().err


@pytest.mark.render
def test_play_writes_a_video_of_a_run(tmp_path):
    run = tmp_path / "run"
    assert main(["train", "FrankaReach", "--steps", "64", "--out", str(run), *TINY]) == 0
    video = run / "videos" / "play.mp4"
    assert main(["play", str(run), "--video", str(video)]) == 0
    assert video.stat().st_size > 1000


def test_ctrl_c_is_answered_in_one_line(monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("mimex.commands.envs.run", interrupted)
    assert main(["envs"]) == 130
    assert capsys.readouterr().err == "mimex: interrupted; what was saved is intact\n"
