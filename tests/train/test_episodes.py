import numpy as np
import pytest

from mimex.train.episodes import Episodes


def step(episodes, rewards, ended, success):
    info = {"final_info": {"success": np.array(success)}}
    episodes.step(np.array(rewards), np.array(ended), info if any(ended) else {})


def test_metrics_are_means_over_the_ended_episodes():
    episodes = Episodes(2, remember=10)
    assert episodes.metrics() == {}
    step(episodes, [1.0, 10.0], [False, True], [False, True])
    step(episodes, [2.0, 20.0], [True, False], [False, False])
    found = episodes.metrics()
    assert found["train/success"] == 0.5
    assert found["train/return"] == pytest.approx((10 + 3) / 2)
    assert found["train/episode_steps"] == pytest.approx(1.5)
    assert found["train/episodes"] == 2


def test_only_the_newest_are_remembered():
    episodes = Episodes(1, remember=1)
    step(episodes, [1.0], [True], [False])
    step(episodes, [5.0], [True], [True])
    assert episodes.metrics()["train/return"] == 5.0


def test_saved_episodes_go_on_and_begin_forgets_all():
    one, other = Episodes(2, remember=3), Episodes(2, remember=3)
    step(one, [1.0, 2.0], [True, False], [True, False])
    other.load_state_dict(one.state_dict())
    for episodes in (one, other):
        step(episodes, [3.0, 4.0], [False, True], [False, True])
    assert one.metrics() == other.metrics()
    one.begin()
    assert one.metrics() == {}
