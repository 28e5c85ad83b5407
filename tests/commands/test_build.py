"""From settings to the parts of a run."""

from dataclasses import replace

import pytest

from mimex.commands.build import make_training
from mimex.config import preset


@pytest.mark.render
@pytest.mark.parametrize(
    ("observation", "bonus", "run"),
    [
        ("pixels", "mimex", 4),
        ("pixels", "icm", 4),
        ("pixels", "rnd", 1),  # a window of one step shares nothing
        ("pixels", "none", 1),
        ("state", "mimex", 1),
    ],
)
def test_batches_are_drawn_in_runs_only_where_windows_of_pictures_gain_by_it(
    tmp_path, observation, bonus, run
):
    config = preset("cpu", observation, "dmc/cartpole_swingup")
    config = replace(config, bonus=bonus, steps=100, out=tmp_path)
    assert make_training(config).agent.replay.run == run
    chosen = replace(config, replay=replace(config.replay, run=3))
    assert make_training(chosen).agent.replay.run == 3
