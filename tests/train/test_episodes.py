import numpy as np
import pytest

from mimex.contracts import Step, final_successes
from mimex.train.episodes import Episodes


def take_in(episodes, rewards, ended, info):
    never = np.zeros(len(ended), bool)
    episodes.step(Step(None, None, None, np.array(rewards), np.array(ended), never, info))


def step(episodes, rewards, ended, success):
    info = {"final_info": {"success": np.array(success)}}
    take_in(episodes, rewards, ended, info if any(ended) else {})


def test_metrics_are_means_over_the_ended_episodes():
    episodes = Episodes(2, remember=10)
    assert episodes.metrics() == {}  # no episode has ended, no reward has come
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
    one.begin(None)
    assert one.metrics() == {"explore/first_reward": 2.0}  # what has been found is not forgotten


def test_a_condition_counts_for_the_episode_in_which_it_was_met():
    episodes = Episodes(2, remember=10)
    calm = np.zeros(2)

    def lift(now, ended, final=(0.0, 0.0)):
        info = {"reward/lift_bonus": np.array(now), "reward/object_distance": np.ones(2)}
        if any(ended):
            final_info = {"success": np.zeros(2, bool), "reward/lift_bonus": np.array(final)}
            info["final_info"] = final_info
        take_in(episodes, calm, ended, info)

    lift([0.5, 0.0], [False, False])  # the first lifts in the middle of its episode
    lift([0.0, 0.0], [True, True])  # both end; the second never lifted
    assert episodes.metrics()["train/reached_lift"] == 0.5
    lift([0.0, 0.0], [False, True], final=[0.0, 0.5])  # the second lifts in its very last step
    assert episodes.metrics()["train/reached_lift"] == pytest.approx(2 / 3)
    assert "train/reached_object" not in episodes.metrics()
    assert episodes.metrics()["explore/first_lift"] == 2  # steps of both environments


def test_the_first_touch_of_an_object_is_reported_in_frames_and_saved():
    episodes = Episodes(2, remember=10, frames_per_step=4)
    quiet = np.zeros(2, bool)
    for touched in ([False, False], [False, True], [True, False]):
        take_in(episodes, np.zeros(2), quiet, {"object_touched": np.array(touched)})
    assert episodes.metrics() == {"explore/first_touch": 4 * 2 * 2}
    other = Episodes(2, remember=10, frames_per_step=4)
    other.load_state_dict(episodes.state_dict())
    assert other.metrics() == episodes.metrics()
    ended = np.array([True, False])
    final = {"success": quiet, "object_touched": quiet}
    take_in(other, np.zeros(2), ended, {"object_touched": quiet, "final_info": final})
    assert other.metrics()["train/reached_touch"] == 1  # by the step before last


def test_the_first_reward_is_counted_in_steps_of_all_environments():
    episodes = Episodes(4, remember=10)
    quiet, found = np.zeros(4, bool), np.array([-0.1, 0.0, 0.2, 0.0])
    take_in(episodes, np.array([-0.1, -0.2, 0.0, -0.1]), quiet, {})
    assert "explore/first_reward" not in episodes.metrics()
    episodes.begin(None)  # a warm-up's steps count
    take_in(episodes, found, quiet, {})
    take_in(episodes, found, quiet, {})
    assert episodes.metrics()["explore/first_reward"] == 8


def test_success_that_only_some_episodes_report_is_none_of_the_others():
    episodes = Episodes(2, remember=10)
    take_in(episodes, [1.0, 1.0], [True, True], {"final_info": {}})
    assert "train/success" not in episodes.metrics()  # nothing is known of it yet
    step(episodes, [1.0, 1.0], [True, False], [True, False])
    assert episodes.metrics()["train/success"] == pytest.approx(1 / 3)
    take_in(episodes, [1.0, 1.0], [False, True], {"final_info": {}})
    assert episodes.metrics()["train/success"] == pytest.approx(1 / 4)
    other = Episodes(2, remember=10)
    other.load_state_dict(episodes.state_dict())
    assert other.metrics() == episodes.metrics()


def test_success_reported_once_is_expected_of_all_later_episodes():
    episodes = Episodes(1, remember=2)
    step(episodes, [1.0], [True], [True])
    for _ in range(3):
        take_in(episodes, [1.0], [True], {"final_info": {}})
    assert episodes.metrics()["train/success"] == 0.0


@pytest.mark.parametrize("name", ["success", "is_success"])
@pytest.mark.parametrize("kind", [bool, float, object])
def test_successes_count_where_their_mask_says_that_they_were_reported(name, kind):
    values = np.array([True, True], kind)
    masked = {name: values, f"_{name}": np.array([True, False])}
    assert final_successes({"final_info": masked}).tolist() == [True, False]
    assert final_successes({"final_info": masked | {f"_{name}": np.zeros(2, bool)}}) is None
    unset = {name: np.array([None, np.True_]), f"_{name}": np.array([False, True])}
    assert final_successes({"final_info": unset}).tolist() == [False, True]
    assert final_successes({"final_info": {name: values}}).tolist() == [True, True]
    assert final_successes({}) is None


def test_a_condition_that_only_running_episodes_report_is_not_met_by_ended_ones():
    episodes = Episodes(2, remember=10)
    info = {
        "reward/lift_bonus": np.array([1.0, 0.0]),
        "_reward/lift_bonus": np.array([True, False]),
    }
    take_in(episodes, [0.0, 0.0], [False, True], info | {"final_info": {}})
    assert episodes.metrics()["train/reached_lift"] == 0
