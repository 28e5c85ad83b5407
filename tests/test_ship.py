"""scripts/ship.py ships the better run, and only one that succeeds in half of its episodes."""

import importlib.util
import json

import numpy as np
import pytest
from tests.test_recipes import ROOT

from mimex.cli import main
from mimex.policies import card_path, load_policy
from mimex.study.runs import load_run


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("ship", ROOT / "scripts" / "ship.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "reach"
    sizes = ["--envs", "4", "--loop.rollout-steps", "8", "--steps", "96", "--eval.episodes", "2"]
    short = ["--world.episode-steps", "10", "--threads", "1", "--reward", "dense"]
    assert main(["train", "FrankaReach", *sizes, *short, "--out", str(out)]) == 0
    return load_run(out)


def test_a_policy_that_fails_is_not_shipped(script, run, tmp_path):
    assert script.is_shippable(run)
    assert script.name_of(run) == "FrankaReach"
    assert "not shipped: 0.0% of 256 episodes" in script.ship("FrankaReach", run, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_better_policy_replaces_the_shipped_one(script, run, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "LOWEST", 0.0)
    monkeypatch.setattr(script, "rate", lambda policy: 0.6 if "old" not in policy.card else 0.5)
    target = tmp_path / "FrankaReach.safetensors"
    assert script.ship("FrankaReach", run, tmp_path).startswith("shipped: 60.0%")
    shipped = load_policy(target)
    assert shipped.card["episodes"] == 256
    assert shipped(np.zeros(27, np.float32)).shape == (9,)
    first = target.read_bytes()
    assert script.ship("FrankaReach", run, tmp_path).startswith("not shipped: 60.0%")  # no better
    card = json.loads(card_path(target).read_text())
    card_path(target).write_text(json.dumps(card | {"old": True}))
    assert script.ship("FrankaReach", run, tmp_path).startswith("shipped: 60.0%")
    assert target.read_bytes() == first
    assert "old" not in load_policy(target).card
