"""A study small enough for tests: its runs take about a second beside starting Python."""

import pytest

TINY = """
tasks = ["FrankaReach"]
seeds = 2

[settings]
envs = 4
loop.rollout_steps = 8
loop.bonus_minibatch = 16
ppo.minibatches = 2
ppo.epochs = 1
world.episode_steps = 10
eval.episodes = 2
eval.every = 1_000_000
track.checkpoint_every = 96

[axes.method]
none = { bonus = "none" }
mimex = { bonus = "mimex" }

[scales.cpu.settings]
steps = 320
"""


@pytest.fixture
def tiny_plan(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path
