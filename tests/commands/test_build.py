"""From settings to the parts of a run."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.test_cli import TINY

from mimex.commands.build import make_training
from mimex.config import parse, preset
from mimex.nn.vit import ViT, save_encoder


@pytest.mark.parametrize("observation", [pytest.param("pixels", marks=pytest.mark.render), "state"])
def test_how_batches_are_drawn_does_not_depend_on_the_bonus(tmp_path, observation):
    config = replace(preset("cpu", observation, "dmc/cartpole_swingup"), steps=2000, out=tmp_path)
    drawn = []
    for bonus in ("none", "rnd", "icm", "mimex"):
        run = make_training(replace(config, bonus=bonus))
        replay, choose = run.agent.replay, np.random.default_rng(0)
        for _ in range(3):
            replay.start(np.zeros(replay.observations.shape[1:]))
            for _ in range(400):
                replay.add(*(np.zeros(a.shape[1:]) for a in (replay.observations, replay.actions)),
                           choose.normal(), False)  # fmt: skip
        assert sum(replay.added) > replay.slots  # also once the ring has gone round
        batch = replay.sample(64, run.agent.generator)
        drawn.append((batch.observations.rows, batch.next_observations.rows, batch.rewards))
    assert config.to_dict()["replay"]["run"] == 1
    for arrays in zip(*drawn, strict=True):
        assert all(torch.equal(arrays[0], other) for other in arrays[1:])
    chosen = replace(config, replay=replace(config.replay, run=3))
    assert make_training(chosen).agent.replay.run == 3


@pytest.mark.parametrize(
    ("task", "observation", "section", "settings"),
    [
        ("gym/Pendulum-v1", "own", "gym", {"episode_steps": 1}),
        ("gym/Pendulum-v1", "own", "gym", {"episode_steps": 7}),
        ("dmc/cartpole_swingup", "state", "suite", {"action_repeat": 500}),  # two steps an episode
    ],
)
def test_the_replay_holds_all_of_a_run_of_short_episodes(
    tmp_path, task, observation, section, settings
):
    config = preset("cpu", observation, task, agent="drqv2")
    config = replace(config, steps=10**6 if section == "suite" else 2000, out=tmp_path)
    config = replace(config, **{section: replace(getattr(config, section), **settings)})
    run = make_training(config)
    replay, length = run.agent.replay, 2 if section == "suite" else settings["episode_steps"]
    each = np.zeros(replay.observations.shape[1:], np.float32)
    for number in range(2000):
        if number % length == 0:
            replay.start(each)
        replay.add(each, np.zeros(replay.actions.shape[1:], np.float32), 0.0, False)
    assert sum(replay.added) == 2000 + -(-2000 // length) <= replay.slots


def test_the_replay_is_little_larger_than_a_run_of_long_episodes(tmp_path):
    config = replace(preset("cpu", "state", "dmc/cartpole_swingup"), steps=100_000, out=tmp_path)
    assert 50_000 < make_training(config).agent.replay.slots < 56_000


@pytest.mark.render
def test_with_a_frozen_encoder_each_image_is_encoded_once_and_only_features_are_kept(
    tmp_path, monkeypatch
):
    save_encoder(tmp_path / "vit.safetensors", ViT(64, heads=3, width=24, depth=1, patch=8))
    seen, forward = [], ViT.forward

    def counted(self, images):
        seen.append(images.shape[0])
        return forward(self, images)

    monkeypatch.setattr(ViT, "forward", counted)
    words = ["FrankaReach", "--observation", "pixels", "--vision.encoder", "vit", *TINY]
    words += ["--vision.checkpoint", str(tmp_path / "vit.safetensors"), "--bonus", "mimex"]
    words += ["--ppo.no-normalize-observations"]  # or the first rollout ends with a reset
    training = make_training(parse(words).checked())
    envs, steps, rollouts, ended = 4, 8, 3, 0
    for _ in training.train(rollouts * envs * steps):
        ended += int((training.agent.rollout.terminated | training.agent.rollout.truncated).sum())
    training.env.close()
    assert ended > 0
    assert sum(seen) == envs * (rollouts * steps + 1) + ended
    state = training.agent.state_dict()
    assert training.agent.rollout.observations["image"].shape == (steps + 1, envs, 24)
    assert state["history"]["image"].shape[2:] == (24,)
    assert training.agent.probe.features.shape[2:] == (24,)
