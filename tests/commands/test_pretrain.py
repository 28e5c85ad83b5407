"""Pretraining: what it writes, that it continues exactly, and what it refuses."""

import json
import signal

import matplotlib.image
import pytest
import torch
from tests.processes import assert_equal, rows

from mimex.agents.encoders import SHIPPED
from mimex.cli import main
from mimex.commands.pretrain import Pretraining
from mimex.nn.vit import load_encoder
from mimex.train import checkpoint

pytestmark = pytest.mark.render

SMALL = ["--tasks", "FrankaReach", "KukaCabinet", "--batch", "8", "--steps", "4", "--width", "24"]
SMALL += ["--depth", "1", "--log-every", "1", "--save-every", "2", "--threads", "1"]


def pretrained(folder, *more):
    return main(["pretrain", "--out", str(folder), *SMALL, *more])


def latest(folder):
    return checkpoint.load(sorted((folder / "checkpoints").glob("*"))[-1])["state"]


def test_a_run_leaves_metrics_reconstructions_an_encoder_and_its_card(tmp_path, capsys):
    assert pretrained(tmp_path) == 0
    assert "4 of 4 steps" in capsys.readouterr().out
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3, 4]
    assert all(row["pretrain/loss"] > 0 for row in rows(tmp_path))
    image = matplotlib.image.imread(tmp_path / "reconstructions" / "step_000000004.png")
    assert image.shape[:2] == (3 * 64 * 2, 4 * 64 * 2)  # two images of each task, twice as large
    card = json.loads((tmp_path / "encoder.json").read_text())
    assert card["steps"] == 4
    assert card["data"]["images"] == 32
    assert card["loss"] == rows(tmp_path)[-1]["pretrain/loss"]


@pytest.mark.parametrize(("stop_at", "more"), [(2, []), (3, []), (1, ["--log-every", "2"])])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path, monkeypatch, stop_at, more):
    assert pretrained(tmp_path / "whole") == 0
    advance = Pretraining.advance

    def stopped(self):
        advance(self)
        if self.step == stop_at:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Pretraining, "advance", stopped)
        assert pretrained(tmp_path / "cut", *more) == 128 + signal.SIGINT
    assert pretrained(tmp_path / "cut", *more) == 0
    whole, cut = latest(tmp_path / "whole"), latest(tmp_path / "cut")
    assert whole.pop("rows") == 4
    cut.pop("rows")
    assert_equal(whole, cut)
    if not more:
        assert rows(tmp_path / "whole") == rows(tmp_path / "cut")


@pytest.mark.parametrize("save_every", ["2", "3"])
def test_a_run_that_broke_off_ends_as_one_that_did_not(tmp_path, monkeypatch, capsys, save_every):
    """At step 3: with rows that no checkpoint has, or before the first checkpoint."""
    save = ["--save-every", save_every]
    assert pretrained(tmp_path / "whole", *save) == 0
    advance = Pretraining.advance

    def broken(self):
        if self.step == (3 if save_every == "2" else 2):
            raise RuntimeError("power cut")
        advance(self)

    with monkeypatch.context() as patch:
        patch.setattr(Pretraining, "advance", broken)
        assert pretrained(tmp_path / "cut", *save) == 1
    assert "power cut" in capsys.readouterr().err
    assert len(rows(tmp_path / "cut")) == (3 if save_every == "2" else 2)
    assert pretrained(tmp_path / "cut", *save) == 0
    assert rows(tmp_path / "whole") == rows(tmp_path / "cut")
    assert_equal(latest(tmp_path / "whole"), latest(tmp_path / "cut"))


def test_a_loss_that_is_not_finite_ends_the_run_before_it_is_saved(tmp_path, capsys):
    assert pretrained(tmp_path, "--lr", "1e30") == 1
    assert "--lr 1e+30 is too high" in capsys.readouterr().err
    assert not (tmp_path / "encoder.safetensors").exists()


def test_threads_change_nothing(tmp_path):
    assert pretrained(tmp_path / "one") == 0
    assert pretrained(tmp_path / "two", "--threads", "2") == 0
    assert_equal(latest(tmp_path / "one"), latest(tmp_path / "two"))


def test_the_loss_falls(tmp_path):
    more = ["--steps", "30", "--varied", "0", "--save-every", "30", "--batch", "16"]
    assert pretrained(tmp_path, *more) == 0
    losses = [row["pretrain/loss"] for row in rows(tmp_path)]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_a_runs_agent_moves_the_robot_too(tmp_path):
    from tests.test_cli import TINY

    run = tmp_path / "run"
    assert main(["train", "FrankaReach", "--steps", "64", "--out", str(run), *TINY]) == 0
    words = ["--runs", str(run), "--tasks", "FrankaReach", "--batch", "4", "--steps", "2"]
    assert pretrained(tmp_path / "pre", *words) == 0
    state = latest(tmp_path / "pre")
    assert [source["plan"] is None for source in state["sources"]] == [False, True]
    assert not torch.equal(
        torch.as_tensor(state["sources"][0]["env"]["targets"]),
        torch.as_tensor(state["sources"][1]["env"]["targets"]),
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--batch", "9"], "use a multiple of 2"),
        (["--steps", "0"], "--steps is 0, but must be at least 1"),
        (["--mask-ratio", "1"], "--mask-ratio is 1.0, but must be between 0 and 1"),
        (["--varied", "2"], "--varied is 2.0, but must be in [0, 1]"),
        (["--lr", "0"], "--lr is 0.0, but must be above 0"),
        (["--tasks", "FrankaReech", "--batch", "8"], "did you mean 'FrankaReach'"),
        (["--image-size", "60"], "image_size=60 pixels cannot be cut into patches of 8"),
        (["--runs", "nowhere", "--batch", "9"], "nowhere is not a run folder"),
    ],
)
def test_wrong_settings_are_refused_and_leave_no_run(tmp_path, capsys, words, told):
    assert pretrained(tmp_path / "run", *words) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_folder_of_another_run_is_refused(tmp_path, capsys):
    assert pretrained(tmp_path, "--steps", "1") == 0
    assert pretrained(tmp_path, "--steps", "2") == 1
    assert "steps: 1 there, 2 now" in capsys.readouterr().err


@pytest.mark.skipif(not SHIPPED.is_file(), reason="no encoder is shipped")
def test_the_shipped_encoder_is_small_and_better_than_random_networks_by_its_card():
    assert SHIPPED.stat().st_size <= 10e6
    card = json.loads(SHIPPED.with_suffix(".json").read_text())
    network = load_encoder(SHIPPED)
    architecture = card["architecture"]
    assert (network.image_size, network.heads) == (
        architecture["image_size"],
        architecture["heads"],
    )
    scores = card["probes"]["r2"]
    mean = {name: sum(each.values()) / len(each) for name, each in scores.items()}
    assert mean["pretrained"] == max(mean.values())
