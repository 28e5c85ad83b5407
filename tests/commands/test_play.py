"""Agents without training play any task, with and without a renderer."""

import sys

import pytest

from mimex.cli import main

OWN = "gym/tests.tasks:"


@pytest.fixture
def no_encoder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)


@pytest.mark.parametrize(
    ("task", "agent", "outcome"),
    [
        ("FrankaReach", "expert", ", success"),
        ("FrankaReach", "zero", ", no success"),
        ("gym/CartPole-v1", "random", " steps"),
        ("dmc/cartpole_swingup", "zero", " steps"),
        (f"{OWN}DictAction-v0", "random", "success"),
    ],
)
def test_without_a_video_the_outcome_is_printed(task, agent, outcome, no_encoder, capsys, tmp_path):
    command = ["play", task, "--agent", agent, "--episodes", "2"]
    assert main(command) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["episode 1", "episode 2"]
    assert all(line.endswith(outcome) for line in lines)
    assert f"no video: {task} cannot be rendered" in said.err
    assert "pip install 'mimex[video]'" in said.err
    assert main([*command, "--video", "asked.mp4"]) == 1
    assert not list(tmp_path.iterdir())


def test_an_environment_that_draws_nothing_is_played(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["play", f"{OWN}Numbers-v0", "--agent", "zero"]) == 0
    said = capsys.readouterr()
    assert said.out == "episode 1: return 0.00 in 15 steps, no success\n"
    assert "Numbers-v0 cannot be rendered" in said.err
    assert main(["play", "gym/mimex/FlagCar-v0", "--agent", "zero"]) == 0
    assert "has no render_mode" in capsys.readouterr().err


def test_random_actions_depend_on_the_seed_alone(no_encoder, capsys):
    outcomes = []
    for seed in ("1", "1", "2"):
        assert main(["play", f"{OWN}Numbers-v0", "--agent", "random", "--seed", seed]) == 0
        outcomes.append(capsys.readouterr().out)
    assert outcomes[0] == outcomes[1] != outcomes[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gym/CartPole-v1", "--agent", "expert"], "gym/CartPole-v1 has none"),
        ([f"{OWN}NoZero-v0", "--agent", "zero"], "use --agent random"),
        (["gym/CartPole-v1"], "or a task with --agent zero, random or expert"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_remedy(arguments, words, no_encoder, capsys):
    assert main(["play", *arguments]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.render
def test_an_untrained_agent_has_a_video_named_after_its_task(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["play", f"{OWN}Swing-v0", "--agent", "zero"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("episode 1: return ")
    assert said[1] == "gym-tests.tasks-Swing-v0.mp4"
    assert (tmp_path / said[1]).stat().st_size > 1000
