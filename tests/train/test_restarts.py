"""Restarts from states on the way to a reward."""

import gymnasium
import numpy as np
import pytest
from tests.commands.test_train import A_ROLLOUT, command
from tests.processes import assert_equal, rows

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.cli import main
from mimex.contracts import Step
from mimex.train.checkpoint import Checkpoints
from mimex.train.restarts import (
    FADE,
    LEAST_WEIGHT,
    PATIENCE,
    RETRIES,
    Restarts,
    RestartSettings,
)


class Line:
    """N counters: the state is how far each has walked, and the observation is the state."""

    def __init__(self, num_envs):
        self.num_envs, self.unwrapped = num_envs, self
        self.position = np.zeros(num_envs)

    def snapshot(self):
        return {"position": self.position.copy()}

    def restore(self, rows, states):
        self.position[rows] = states["position"]
        return self.position[rows]


def walk(env, restarts, *, rewards, ended=(), amount=1.0):
    """One step of each counter."""
    env.position += 1
    over = np.zeros(env.num_envs, bool)
    over[list(ended)] = True
    env.position[over] = 0  # a new episode begins in the same step
    received = np.zeros(env.num_envs)
    received[list(rewards)] = amount
    step = Step(None, None, env.position.copy(), received, over, np.zeros_like(over), {})
    return restarts.step(step)


def made(num_envs=2, **settings):
    env = Line(num_envs)
    settings = {"share": 0.5, "every": 1, "reach": 10, "per_episode": 4, **settings}
    restarts = Restarts(env, RestartSettings(**settings), "Line", seed=0)
    restarts.begin()
    return env, restarts


def archived(restarts):
    return sorted(restarts._archive["position"][: len(restarts)].tolist())


def test_states_on_the_way_to_the_first_reward_are_archived_when_the_episode_ends():
    env, restarts = made(per_episode=100, share=0.0)
    for _ in range(15):
        walk(env, restarts, rewards=())
    walk(env, restarts, rewards=(0,))
    walk(env, restarts, rewards=(0,))
    assert len(restarts) == 0
    walk(env, restarts, rewards=(), ended=(0, 1))
    assert archived(restarts) == [*range(6, 16)]  # ten steps before the first reward, of 0 alone
    assert restarts._values[: len(restarts)].tolist() == [2.0] * 10  # what the episode received


def test_an_archived_state_is_of_the_rewarded_episode():
    env, restarts = made(per_episode=100, share=0.0)
    for _ in range(5):
        walk(env, restarts, rewards=())
    walk(env, restarts, rewards=(), ended=(0,))
    walk(env, restarts, rewards=())
    walk(env, restarts, rewards=(0,), ended=(0,))
    assert archived(restarts) == [0, 1]  # nothing of the episode before


def test_costs_are_no_reward():
    env, restarts = made(share=0.0)
    walk(env, restarts, rewards=())
    walk(env, restarts, rewards=(0,), amount=-1.0, ended=(0,))
    assert len(restarts) == 0


def test_episodes_that_began_at_an_archived_state_add_nothing():
    env, restarts = made(num_envs=1, share=0.999)
    walk(env, restarts, rewards=())
    step = walk(env, restarts, rewards=(0,), ended=(0,))
    assert not step.restarted[0]  # the step is still of the normal episode
    size = len(restarts)
    step = walk(env, restarts, rewards=())
    assert step.restarted[0]
    walk(env, restarts, rewards=(0,), ended=(0,))
    assert len(restarts) == size > 0


def test_a_restarted_episode_begins_at_the_archived_state_with_its_observation():
    env, restarts = made(num_envs=1, share=0.999, per_episode=1)
    for _ in range(4):
        walk(env, restarts, rewards=())
    step = walk(env, restarts, rewards=(0,), ended=(0,))
    state = restarts._archive["position"][0]
    assert step.next_observation[0] == env.position[0] == state > 0


def episode(env, restarts, received):
    for _ in range(8):
        walk(env, restarts, rewards=())
    walk(env, restarts, rewards=(0,), ended=(0,), amount=received)


def test_a_full_archive_replaces_the_least_rewarded_episodes():
    env, restarts = made(num_envs=1, share=0.0, capacity=10, per_episode=4)
    sizes = []
    for received in (3.0, 1.0, 2.0):
        episode(env, restarts, received)
        sizes.append(len(restarts))
    assert sizes == [4, 8, 10]
    values = lambda: sorted(restarts._values.tolist())  # noqa: E731
    assert values() == [1.0] * 2 + [2.0] * 4 + [3.0] * 4
    episode(env, restarts, 5.0)
    assert values() == [2.0] * 2 + [3.0] * 4 + [5.0] * 4
    episode(env, restarts, 1.0)  # less than all that is there
    assert values() == [2.0] * 2 + [3.0] * 4 + [5.0] * 4


def test_groups_whose_outcome_is_uncertain_are_drawn_more_often():
    _, restarts = made(num_envs=1)
    restarts._size = 4
    restarts._groups[:4] = [0, 1, 1, 2]
    restarts._tries[:3] = [[9.0, 9.0], [9.0, 4.5], [9.0, 0.0]]  # always, half of the time, never
    p = np.array([0.95, 0.5, 0.05])  # with half an attempt of each kind as the prior
    weights = 4 * p * (1 - p) + LEAST_WEIGHT
    expected = np.array([weights[0], weights[1] / 2, weights[1] / 2, weights[2]]) / weights.sum()
    np.testing.assert_allclose(restarts._weights(), expected)


def test_an_attempt_succeeds_with_half_of_what_the_archived_episode_received():
    env, restarts = made(num_envs=1, share=0.999, per_episode=1)
    walk(env, restarts, rewards=())
    walk(env, restarts, rewards=(0,), ended=(0,), amount=4.0)
    group = restarts._groups[0]
    walk(env, restarts, rewards=(0,), ended=(0,), amount=1.9)
    assert restarts._tries[group].tolist() == [1.0, 0.0]
    walk(env, restarts, rewards=(0,), ended=(0,), amount=2.0)
    assert restarts._tries[group].tolist() == [1.0 + FADE, 1.0]


def test_a_restarted_episode_without_reward_in_time_is_truncated_and_another_begins():
    env, restarts = made(num_envs=2, share=0.999, per_episode=1, reach=16)
    walk(env, restarts, rewards=())
    walk(env, restarts, rewards=(0, 1), ended=(0, 1))
    assert restarts._source.tolist() == [0, 0]  # one step before the reward
    limit = 2 + PATIENCE  # a group is one step here
    walk(env, restarts, rewards=(1,))  # attempt 1 is rewarded
    for _ in range(limit - 2):
        assert not walk(env, restarts, rewards=()).ended.any()
    before = env.position.copy()
    step = walk(env, restarts, rewards=())
    assert step.truncated.tolist() == [True, False]
    assert step.info["final_obs"][0] == before[0] + 1  # where it was, not where it begins anew
    assert step.next_observation[0] == 1.0
    assert step.restarted.all()
    retries = 1
    for _ in range(20 * limit):
        retries += int(walk(env, restarts, rewards=()).truncated[0])
    assert retries == RETRIES


def test_the_share_of_new_episodes_that_was_asked_for_is_restarted():
    env, restarts = made(num_envs=400, share=0.25)
    walk(env, restarts, rewards=())
    walk(env, restarts, rewards=(0,), ended=range(400))
    step = walk(env, restarts, rewards=())
    assert 65 <= step.restarted.sum() <= 135  # 100 of 400, give or take four standard deviations


def test_it_continues_exactly_from_its_state():
    env, restarts = made(num_envs=8)
    for number in range(20):
        walk(env, restarts, rewards=(number % 8,), ended=((3 * number) % 8,))
    twin_env, twin = made(num_envs=8)
    twin_env.position[:] = env.position
    twin.load_state_dict(restarts.state_dict())
    for number in range(20):
        one, same = (
            walk(*pair, rewards=(number % 8,), ended=((5 * number) % 8,))
            for pair in ((env, restarts), (twin_env, twin))
        )
        np.testing.assert_array_equal(one.next_observation, same.next_observation)
    assert_equal(twin.state_dict(), restarts.state_dict())


TASKS = ("mimex/FrankaPick-v0", "mimex/KukaCabinet-v0", "mimex/DeepSea-v0", "dmc/reacher_easy")


@pytest.mark.parametrize("task", TASKS)
def test_environments_continue_from_a_restored_state_as_the_first_time(task):
    env = gymnasium.make_vec(task, num_envs=3)
    simulation = env.unwrapped
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(6)]
    for some in actions[:3]:
        env.step(some)
    state = simulation.snapshot()
    first = [env.step(some)[0] for some in actions[3:]]
    env.reset(seed=1)  # other goals, other cubes
    everyone = np.arange(3, dtype=np.int32)
    simulation.restore(everyone, state)
    again = [env.step(some)[0] for some in actions[3:]]
    np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("task", TASKS)
def test_the_others_are_left_alone(task):
    env = gymnasium.make_vec(task, num_envs=3)
    env.reset(seed=0)
    state = env.unwrapped.snapshot()
    env.action_space.seed(0)
    observation = env.step(env.action_space.sample())[0]
    one = np.array([1], np.int32)
    seen = env.unwrapped.restore(one, {name: values[one] for name, values in state.items()})
    assert np.shape(seen) == np.shape(observation[one])
    if hasattr(env.unwrapped, "observe"):
        now = env.unwrapped.observe()
        np.testing.assert_array_equal(now[[0, 2]], observation[[0, 2]])
        np.testing.assert_array_equal(now[one], seen)


RESTARTING = ("--restarts.share", "0.5", "--restarts.every", "1", "--world.goal-spread", "0",
              "--world.terms", "goal_distance=1", "--world.joint-noise", "0.01")  # fmt: skip


def test_a_run_that_was_stopped_restarts_as_if_undisturbed(tmp_path):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert main(command(straight, 12, *RESTARTING)) == 0
    assert main(command(stopped, 6, *RESTARTING)) == 0
    assert main(command(stopped, 12, *RESTARTING)) == 0
    last = rows(straight)[-1]
    assert last["restart/archive"] > 0
    assert last["restart/episode_steps"] > 0  # restarted episodes have ended, too
    assert last["step"] == 13 * A_ROLLOUT
    ends = [Checkpoints(run / "checkpoints").latest()[1] for run in (straight, stopped)]
    assert_equal(ends[1]["agent"]["algorithm"], ends[0]["agent"]["algorithm"])
    assert_equal(ends[1]["restarts"], ends[0]["restarts"])


def test_environments_that_cannot_restore_are_refused(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "gym/CartPole-v1", "--restarts.share", "0.2", "--out", str(run)]) != 0
    assert "gym/CartPole-v1 cannot restore its state: use --restarts.share 0" in (
        capsys.readouterr().err
    )
    assert not (run / "config.json").exists()


@pytest.mark.parametrize("setting", [{"share": 1.0}, {"share": -0.1}, {"every": 0}])
def test_settings_that_make_no_restarts_are_refused(setting):
    with pytest.raises(ValueError, match=f"restarts.{next(iter(setting))} is"):
        RestartSettings(**setting)
