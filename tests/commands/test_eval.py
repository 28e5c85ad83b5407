"""A run folder of a stranger names modules, and none of them runs."""

import json
import sys

import pytest
from tests.commands.test_train_gym import command

from mimex.cli import main

HELPER = """
import pathlib
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
(pathlib.Path(__file__).parent / "executed").touch()
gymnasium.register("Planted-v0", CartPoleEnv, max_episode_steps=9)
"""


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A run whose config.json was changed to name a module that lies beside it."""
    run = tmp_path / "run"
    assert main(command("gym/CartPole-v1", run, "ppo", 2)) == 0
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"task": "gym/planted:Planted-v0"}))
    (run / "planted.py").write_text(HELPER)
    monkeypatch.chdir(run)
    monkeypatch.syspath_prepend(str(run))  # as of `python -m mimex`, and of PYTHONPATH=.
    yield run
    sys.modules.pop("planted", None)


@pytest.mark.parametrize("words", [["eval", ".", "--episodes", "1"], ["play", "."]])
def test_a_module_that_a_folder_names_is_not_imported(planted, words, capsys):
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "config.json" in error
    assert "'planted'" in error
    assert "--trust-modules planted" in error
    assert main([*words, "--trust-modules", "plan"]) == 1
    assert not (planted / "executed").exists()


def test_a_module_that_the_user_names_is_imported(planted):
    assert main(["eval", ".", "--episodes", "1", "--trust-modules", "planted"]) == 0
    assert (planted / "executed").exists()
