import json
from dataclasses import replace
from pathlib import Path

import pytest

from mimex.bonus.autoencoder import AutoencoderSize
from mimex.config import TrainConfig, VisionSettings, preset


def test_settings_survive_json():
    config = replace(
        preset("cpu", task="KukaPick"),
        out=Path("somewhere"),
        vision=VisionSettings(checkpoint=Path("w")),
    )
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_the_paper_preset_has_the_published_numbers():
    paper = preset("paper", task="FrankaReach")
    assert (paper.envs, paper.loop.rollout_steps) == (512, 32)
    ppo = paper.ppo
    assert (ppo.epochs, ppo.minibatches, ppo.clip, ppo.grad_norm) == (10, 4, 0.1, 1.0)
    assert (ppo.discount, ppo.trace, ppo.entropy_weight, ppo.initial_std) == (0.99, 0.95, 0.0, 1.0)
    assert (paper.scale.beta, paper.scale.normalise) == (0.05, "none")
    assert (paper.mimex.length, paper.mimex.mask_ratio, paper.mimex.padding) == (5, 0.7, "zeros")
    assert (paper.loop.bonus_minibatch, paper.loop.train_fraction) == (512, 1.0)
    assert paper.loop.ends_at == "observation"
    assert paper.mimex.size == AutoencoderSize()
    assert not ppo.two_heads
    assert not paper.loop.stagger


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": "FrankaPik"}, "did you mean 'FrankaPick'"),
        ({"bonus": "mimix"}, "--bonus is 'mimix'.*did you mean 'mimex'"),
        ({"reward": "spars"}, "did you mean 'sparse'"),
        ({"observation": "pixel"}, "did you mean 'pixels'"),
        ({"steps": 0}, "--steps is 0"),
        ({"seed": -1}, "--seed is -1"),
        ({"vision": VisionSettings(encoder="vitt")}, "did you mean 'vit'"),
    ],
)
def test_what_makes_no_run_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        replace(preset("cpu", task="FrankaReach"), **change).checked()


def test_an_unknown_setting_in_a_file_is_named():
    data = preset("cpu", task="FrankaReach").to_dict()
    data["ppo"]["epoch"] = data["ppo"].pop("epochs")
    with pytest.raises(ValueError, match=r"'epoch'.*did you mean 'epochs'"):
        TrainConfig.from_dict(data)


def test_every_setting_of_the_command_line_is_explained(capsys):
    import tyro

    with pytest.raises(SystemExit):
        tyro.cli(TrainConfig, args=["--help"])
    text = capsys.readouterr().out
    for words in ("--ppo.epochs", "Passes over each rollout", "--mimex.mask-ratio", "--scale.beta"):
        assert words in text


def test_pixels_have_defaults_of_their_own():
    pixels, oracle = preset("cpu", "pixels"), preset("cpu", "oracle")
    assert pixels.ppo.lr < oracle.ppo.lr
    assert pixels.envs < oracle.envs
    assert replace(pixels.ppo, lr=oracle.ppo.lr) == oracle.ppo
