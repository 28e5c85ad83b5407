"""Probes of an encoder: the table, the card, and what is refused."""

import json

import pytest

from mimex.cli import main
from mimex.commands import probe
from mimex.nn.vit import ViT, save_encoder

pytestmark = pytest.mark.render


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "ENVS", 16)
    monkeypatch.setattr(probe, "EVERY", 4)
    path = tmp_path / "encoder.safetensors"
    save_encoder(path, ViT(40, heads=2, width=16, depth=1, patch=8))
    return path


def test_probes_are_printed_and_added_to_the_card(encoder, capsys):
    card = encoder.with_suffix(".json")
    card.write_text(json.dumps({"steps": 7}))
    words = ["--tasks", "FrankaMove", "KukaCabinet", "--images", "64", "--threads", "1"]
    assert main(["pretrain", "probe", str(encoder), *words]) == 0
    printed = capsys.readouterr().out
    written = json.loads(card.read_text())
    assert written["steps"] == 7
    assert written["probes"]["images_per_task"] == 64
    scores = written["probes"]["r2"]
    assert list(scores) == ["pretrained", "random ViT", "random CNN", "raw pixels"]
    for name, by_target in scores.items():
        assert name in printed
        assert {"hand", "cube", "goal", "drawer opening"} < set(by_target)
        assert all(score <= 1 for score in by_target.values())
    assert f"{scores['raw pixels']['hand']:.3f}" in printed
    again = main(["pretrain", "probe", str(encoder), *words])
    assert (again, json.loads(card.read_text())) == (0, written)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--images", "3"], "--images is 3, but must be at least 16"),
        (["--tasks", "FrankaMuve"], "did you mean 'FrankaMove'"),
        (["--seed", "-1"], "--seed is -1, but must be 0 or more"),
    ],
)
def test_wrong_settings_are_refused(encoder, capsys, words, told):
    assert main(["pretrain", "probe", str(encoder), *words]) == 1
    assert told in capsys.readouterr().err
    assert not encoder.with_suffix(".json").exists()


def test_a_missing_encoder_is_refused_with_what_was_expected(tmp_path, capsys):
    assert main(["pretrain", "probe", str(tmp_path / "none.safetensors")]) == 1
    assert "none.safetensors; expected the weights of" in capsys.readouterr().err
