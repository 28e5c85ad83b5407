"""Demonstrations, read back with Minari's own API and replayed in the recovered environment."""

import sys

import minari
import numpy as np
import pytest
from tests.test_cli import TINY

from mimex.cli import main
from mimex.commands import demos


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    """Minari's folder."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def replayed(dataset, rows=None):
    """Plays episodes' actions again from their seeds, and compares all that comes of them."""
    env = dataset.recover_environment()
    seeds = [m["seed"] for m in dataset.storage.get_episode_metadata(range(len(dataset)))]
    for episode, seed in list(zip(dataset.iterate_episodes(), seeds, strict=True))[:rows]:
        observation, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(observation, episode.observations[0])
        assert len(episode.observations) == len(episode.actions) + 1
        for step, action in enumerate(episode.actions):
            observation, reward, terminated, truncated, info = env.step(action)
            np.testing.assert_array_equal(observation, episode.observations[step + 1])
            assert reward == pytest.approx(episode.rewards[step])
            assert terminated == episode.terminations[step]
            assert truncated == episode.truncations[step]
            assert info["success"] == episode.infos["success"][step + 1]
        assert terminated or truncated
    env.close()
    return seeds


def test_an_experts_dataset_is_read_by_minari_and_replayed_exactly(datasets, capsys, monkeypatch):
    monkeypatch.setattr(demos, "PARALLEL_ENVS", 2)  # so that the last batch has one too many
    assert main(["demos", "FrankaReachUp", "--episodes", "3", "--seed", "40"]) == 0
    said = capsys.readouterr()
    assert "3 episodes, 3 of them successful" in said.out
    assert "3 of 3 episodes" in said.err
    dataset = minari.load_dataset("mimex/FrankaReachUp/expert-v0")
    assert dataset.total_episodes == 3
    assert dataset.spec.env_spec.id == "mimex/FrankaReachUp-v0"
    assert replayed(dataset) == [40, 41, 42]
    assert list(minari.list_local_datasets()) == ["mimex/FrankaReachUp/expert-v0"]
    assert [path.name for path in datasets.iterdir()] == ["mimex"]


def test_a_pretrained_policys_dataset_has_its_reward(datasets):
    words = ["--pretrained", "--episodes", "2", "--name", "reach-v3"]
    assert main(["demos", "FrankaReach", *words]) == 0
    dataset = minari.load_dataset("reach-v3")
    assert dataset.spec.env_spec.kwargs["reward"] == "dense"
    assert all(episode.infos["success"][-1] for episode in dataset.iterate_episodes())
    replayed(dataset, rows=1)


def test_a_runs_dataset_has_its_settings_and_failures_can_be_left_out(datasets, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "FrankaReach", "--steps", "64", "--out", str(run), *TINY]) == 0
    words = ["demos", "FrankaReach", "--policy", str(run), "--episodes", "2"]
    assert main([*words, "--only-success"]) == 1
    assert "0 of 20 episodes were successful" in capsys.readouterr().err
    assert not (datasets / "mimex").exists()
    assert not list(datasets.glob(".writing-*"))
    assert main([*words, "--reward", "dense"]) == 0
    dataset = minari.load_dataset("mimex/FrankaReach/policy-v0")
    assert dataset.total_steps == 20
    assert dataset.spec.env_spec.kwargs["reward"] == "dense"
    replayed(dataset)
    assert main([*words, "--observation", "robot"]) == 1
    assert "the policy observes 'oracle'" in capsys.readouterr().err
    assert main(["demos", "KukaReach", *words[2:]]) == 1
    assert "trained on FrankaReach" in capsys.readouterr().err


def test_a_dataset_that_is_there_is_not_touched(datasets, capsys):
    words = ["demos", "FrankaReachUp", "--episodes", "1", "--name", "mine-v0"]
    assert main(words) == 0
    before = {path: path.stat().st_mtime_ns for path in datasets.rglob("*")}
    assert main(words) == 1
    assert "minari delete mine-v0" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in datasets.rglob("*")} == before


def test_an_interrupted_command_leaves_nothing(datasets, monkeypatch):
    batches = []

    def interrupted(*arguments):
        if batches:
            raise KeyboardInterrupt
        batches.append(list(real(*arguments)))
        return iter(batches[0])

    real = demos.episodes
    monkeypatch.setattr(demos, "PARALLEL_ENVS", 1)
    monkeypatch.setattr(demos, "episodes", interrupted)
    assert main(["demos", "FrankaReachUp", "--episodes", "2"]) == 130
    assert batches
    assert list(datasets.iterdir()) == []


@pytest.mark.render
def test_images_are_recorded(datasets):
    words = ["--observation", "pixels", "--episodes", "1", "--name", "images-v0"]
    assert main(["demos", "FrankaReachUp", *words]) == 0
    (episode,) = minari.load_dataset("images-v0").iterate_episodes()
    assert episode.observations["image"].shape == (101, 3, 64, 64)
    assert episode.observations["image"].std() > 1


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["FrankaReech"], "did you mean 'FrankaReach'"),
        (["FrankaReach", "--episodes", "0"], "--episodes is 0"),
        (["FrankaReach", "--name", "no version"], "Malformed dataset ID"),
        (["FrankaReach", "--reward", "dence"], "did you mean 'dense'"),
        (["FrankaReach", "--pretrained", "--policy", "x"], "leave one out"),
    ],
)
def test_mistakes_are_named(words, answer, datasets, capsys):
    assert main(["demos", *words]) == 1
    assert answer in capsys.readouterr().err
    assert list(datasets.iterdir()) == []


def test_without_minari_the_extra_is_named(datasets, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    assert main(["demos", "FrankaReach"]) == 1
    assert "pip install 'mimex[demos]'" in capsys.readouterr().err
