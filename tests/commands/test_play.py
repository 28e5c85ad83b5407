"""Agents without training play any task, with and without a renderer."""

import sys

import imageio.v3 as iio
import pytest

from mimex.cli import main

OWN = "gym/tests.tasks:"


@pytest.mark.parametrize(
    ("task", "agent", "outcome"),
    [
        ("FrankaReach", "expert", ", success"),
        ("FrankaReach", "zero", ", no success"),
        ("gym/CartPole-v1", "random", " steps"),
        ("dmc/cartpole_swingup", "zero", " steps"),
        (f"{OWN}DictAction-v0", "random", "success"),
        (f"{OWN}Numbers-v0", "zero", "in 15 steps, no success"),
    ],
)
def test_outcomes_are_printed_and_nothing_is_written(
    task, agent, outcome, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert main(["play", task, "--agent", agent, "--episodes", "2"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["episode 1", "episode 2"]
    assert all(line.endswith(outcome) for line in lines)
    assert "video" not in said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("task", "agent", "words"),
    [
        ("FrankaReach", "expert", "pip install 'mimex[video]'"),
        ("gym/mimex/FlagCar-v0", "zero", "has no render_mode"),
        (f"{OWN}Numbers-v0", "zero", "Numbers-v0 cannot be rendered"),
    ],
)
def test_a_video_that_cannot_be_drawn_is_refused_before_an_episode(
    task, agent, words, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    if task == "FrankaReach":
        monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert main(["play", task, "--agent", agent, "--video", "asked.mp4"]) == 1
    said = capsys.readouterr()
    assert f"{task} cannot be rendered" in said.err
    assert words in said.err
    assert not said.out
    assert not list(tmp_path.iterdir())


def test_random_actions_depend_on_the_seed_alone(capsys):
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
def test_what_cannot_be_played_is_refused_with_the_remedy(arguments, words, capsys):
    assert main(["play", *arguments]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.render
def test_all_episodes_are_in_the_video_that_is_asked_for(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    task, video = [f"{OWN}Swing-v0", "--agent", "zero"], ["--video", "videos/two.mp4"]
    assert main(["play", *task, "--episodes", "2", *video]) == 0
    *episodes, path = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in episodes] == ["episode 1", "episode 2"]
    assert path == "videos/two.mp4"
    frames = sum(1 for _ in iio.imiter(path))
    assert frames == 2 * int(episodes[0].split("in ")[1].removesuffix(" steps"))
