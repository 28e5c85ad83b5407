"""Learning from a replay buffer, on the real suite with short episodes."""

import math

import numpy as np
import pytest
import torch
from tests.parts import actions, reader

from mimex import RND, BonusScale, MIMEx, NoBonus
from mimex.agents.drqv2 import DrQv2, DrQv2Agent, DrQv2Settings
from mimex.agents.off_policy import Means, OffPolicySettings
from mimex.bonus.base import ConstantBonus
from mimex.bonus.scale import WARMUP
from mimex.data.replay import ReplayBuffer
from mimex.envs.dmc import DMC
from mimex.envs.dmc_vector import VectorDMC
from mimex.track.clock import Clock
from mimex.train.episodes import Episodes
from mimex.train.novelty import Novelty, read_records
from mimex.train.runner import Training
from mimex.types import Window

REPEAT = 100  # frames a step, of an episode's 1,000: it has ten steps
SEED_STEPS = 20
SMALL = {"batch": 8, "hidden": 16, "trunk": 8, "features": "encoder"}


def training(bonus=None, *, envs=1, folder=None, loop=None, scale=None, **agent):
    env = VectorDMC("cartpole_swingup", envs, action_repeat=REPEAT)
    chosen = SMALL | {"seed_steps": SEED_STEPS, "random_steps": 5} | agent
    settings = DrQv2Settings(**chosen)
    bonus = bonus or NoBonus()
    replay = ReplayBuffer(
        400,
        (5,),
        1,
        pixels=False,
        num_envs=envs,
        n_step=settings.n_step,
        window=0 if isinstance(bonus, NoBonus) else bonus.length,
        folder=folder,
    )
    agent = DrQv2Agent(
        DrQv2(reader(5), actions(1), settings, seed=1),
        bonus,
        scale or BonusScale(0.5, normalize=False),
        replay,
        loop or OffPolicySettings(report_every=10 * REPEAT),
        save_replay=folder is not None,
        frames_per_step=REPEAT,
        seed=3,
        clock=Clock(),
    )
    callbacks = {"episodes": Episodes(envs, remember=10, frames_per_step=REPEAT)}
    callbacks["novelty"] = Novelty(env, first_states=15)
    return Training(env, agent, callbacks, seed=2, clock=agent.clock)


def collect(run):
    """One step of every environment; how many updates came after it."""
    if run.observation is None:
        run._begin(run.seed)
    before = run.agent.updates
    run.advance(10**9)
    return run.agent.updates - before


def filled(run, steps=SEED_STEPS - 1):
    for _ in range(steps):
        assert collect(run) == 0
    return run


def mimex(**settings):
    return MIMEx(5, seed=4, **settings)


def windows(batch, features):
    return Window(features, batch.windows.valid, batch.windows.actions)


def without_times(rows):
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def assert_same(one, other):
    np.testing.assert_equal(one, other)


def test_the_buffer_holds_every_observation_with_what_led_to_it():
    run = training()
    for _ in range(25):
        collect(run)
    env = DMC("cartpole_swingup", action_repeat=REPEAT)
    observation, _ = env.reset(seed=2)
    row = 0
    for _ in range(25):
        assert_same(run.agent.replay.observations[row].numpy(), observation)
        action = run.agent.replay.actions[row + 1].numpy()
        observation, reward, terminated, truncated, _ = env.step(action)
        row += 1
        assert float(run.agent.replay.rewards[row]) == np.float32(reward)
        assert not terminated
        if truncated:  # the final observation has its own place, and is no end of all reward
            assert_same(run.agent.replay.observations[row].numpy(), observation)
            assert not run.agent.replay.terminated[row]
            observation, _ = env.reset()
            row += 1
            assert int(run.agent.replay.episode_step[row]) == 0
    assert run.agent.replay.added == [row + 1] == [25 + 1 + 2]
    assert_same(run.observation[0], observation)


def test_updates_come_every_second_step_once_the_seed_steps_are_made():
    run = training()
    due = [collect(run) for _ in range(SEED_STEPS + 6)]
    assert due == [0] * (SEED_STEPS - 1) + [1, 0, 1, 0, 1, 0, 1]


def test_with_several_environments_all_their_steps_count():
    run = training(envs=3)
    due = [collect(run) for _ in range(8)]  # 3, 6, ..., 24 steps
    assert due == [0] * 6 + [1, 2]  # from 18 to 21 lies 20; from 21 to 24 lie 22 and 24
    assert run.step == 24 * REPEAT
    assert run.agent.replay.added == [9, 9, 9]


def test_rows_come_at_round_numbers_of_frames_and_at_the_end():
    run = training(RND(5))
    rows = [(run.step, metrics) for metrics in run.train(25 * REPEAT)]
    assert [step for step, _ in rows] == [10 * REPEAT, 20 * REPEAT, 25 * REPEAT]
    metrics = rows[-1][1]
    assert metrics["train/updates"] == 3
    assert metrics["train/episodes"] == 2
    assert metrics["train/episode_steps"] == 10
    assert metrics["bonus/mean"] > 0
    assert metrics["bonus/beta"] == 0.5
    assert 0 < metrics["bonus/share"] < 1
    assert {"bonus/probe", "drqv2/critic_loss", "time/learning"} <= metrics.keys()


def test_progress_is_told_after_every_round():
    run, told = training(envs=2), []
    list(run.train(12 * REPEAT, progress=told.append))
    assert told == [made * REPEAT for made in range(2, 13, 2)]


@pytest.mark.parametrize("n_step", [1, 3])
def test_the_bonus_of_a_windows_end_stands_for_every_step_that_is_summed_up(n_step):
    run = filled(training(mimex(), n_step=n_step))
    batch = run.agent.replay.sample(8, run.agent.generator)
    features = run.agent.algorithm.encode(batch).windows
    assert not features.requires_grad
    raw = run.agent.bonus.reward(windows(batch, features))
    rewards, metrics = run.agent.relabel(batch, features, run.step)
    steps = torch.tensor([[0.99**k for k in range(n)] + [0.0] * (3 - n) for n in range(4)]).sum(1)
    assert set(batch.weights.tolist()) <= set(steps[1 : n_step + 1].tolist())
    torch.testing.assert_close(rewards, batch.rewards + 0.5 * raw * batch.weights)
    assert metrics["bonus/mean"] == pytest.approx(float(raw.mean()))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("reward", [0.0, 2.0])
def test_beta_means_the_same_for_every_n_step(normalize, reward):
    """Where bonus and reward are constant, all targets have one fixed point."""
    returns = []
    for n_step in (1, 3, 5):
        scale = BonusScale(0.5, normalize=normalize, reward_decay=1.0)
        scale.combine(torch.zeros(WARMUP, 1), torch.ones(WARMUP, 1))
        run = filled(training(ConstantBonus(), n_step=n_step, scale=scale))
        run.agent.replay.rewards.fill_(reward)
        batch = run.agent.replay.sample(64, run.agent.generator)
        rewards, metrics = run.agent.relabel(batch, run.agent.algorithm.encode(batch).windows, 0)
        unit = math.sqrt(1 - 0.99**2) if normalize else 1.0
        assert metrics["bonus/reward"] == pytest.approx(0.5 * unit)
        whole = batch.weights == batch.weights.max()  # n steps: not at an episode's end
        returns.append(float((rewards / (1 - 0.99**n_step))[whole].mean()))
    assert returns == pytest.approx([returns[0]] * 3, rel=1e-5)


def test_the_bonus_is_never_stored():
    paid, unpaid = filled(training(RND(5))), filled(training())
    for _ in range(5):
        paid.agent.learn(paid.step)
    rewards = [run.agent.replay.rewards.numpy() for run in (paid, unpaid)]
    np.testing.assert_equal(*rewards)


@pytest.mark.parametrize("masks", [1, 2, 5])
def test_an_update_takes_one_step_of_the_bonus_whatever_the_masks(masks):
    run = filled(training(mimex(masks=masks)))
    for _ in range(3):
        run.agent.learn(run.step)
    assert run.agent.bonus.steps == run.agent.updates == 3


def test_the_share_of_windows_that_the_bonus_learns_from_can_be_chosen():
    run = training(RND(5), loop=OffPolicySettings(train_fraction=0.25))
    assert filled(run).agent.learn(run.step)["bonus/trained"] == 2


def test_the_schedule_of_beta_counts_frames():
    total = 2 * (SEED_STEPS - 1) * REPEAT
    scale = BonusScale(1.0, normalize=False, schedule="linear", over_steps=total)
    run = filled(training(RND(5), scale=scale))
    assert run.step == total / 2
    run.agent.learn(run.step)
    batch = run.agent.replay.sample(8, run.agent.generator)
    features = run.agent.algorithm.encode(batch).windows
    raw = run.agent.bonus.reward(windows(batch, features))
    rewards, _ = run.agent.relabel(batch, features, run.step)
    torch.testing.assert_close(rewards, batch.rewards + 0.5 * raw * batch.weights)


def test_without_a_bonus_no_windows_are_gathered():
    run = filled(training())
    assert run.agent.replay.sample(4, run.agent.generator).windows is None
    assert not any(name.startswith("bonus/") for name in run.agent.learn(run.step))


@pytest.mark.parametrize("make", [lambda: None, mimex, lambda: RND(5)])
def test_a_run_stopped_within_a_row_continues_as_if_undisturbed(make, tmp_path):
    total = 50 * REPEAT
    straight = training(make())
    expected = without_times(list(straight.train(total)))
    stopped = training(make(), folder=tmp_path)
    rows = without_times(list(stopped.train(total, lambda: stopped.step >= 33 * REPEAT)))
    assert stopped.step == 33 * REPEAT
    stopped.agent.replay.save()
    state = stopped.state_dict()
    continued = training(make(), folder=tmp_path)
    continued.load_state_dict(state)
    rows += without_times(list(continued.train(total)))
    assert rows == expected
    for name, value in straight.agent.algorithm.network.state_dict().items():
        assert torch.equal(value, continued.agent.algorithm.network.state_dict()[name]), name


def test_without_a_saved_buffer_a_new_one_is_filled_first():
    first = training(RND(5))
    list(first.train(30 * REPEAT))
    second = training(RND(5))
    second.load_state_dict(first.state_dict())
    assert second.agent.updates == first.agent.updates == 6
    due = [collect(second) for _ in range(SEED_STEPS)]
    assert due == [0] * (SEED_STEPS - 1) + [1]
    assert second.step == 50 * REPEAT  # of the schedules, which go on


def test_without_a_saved_buffer_no_return_is_of_two_episodes():
    first = training()
    list(first.train(15 * REPEAT))  # the second of the episodes of ten steps is half over
    second = training()
    second.load_state_dict(first.state_dict())
    *_, row = second.train(30 * REPEAT)
    assert row["train/episodes"] == 2
    assert row["train/episode_steps"] == 10
    assert row["train/return"] <= 10 * REPEAT


def test_visits_are_mapped_and_recorded(tmp_path):
    run = training(mimex())
    rows = list(run.train(30 * REPEAT))
    assert [row["explore/coverage"] > 0 for row in rows] == [False, True, True]
    run.record(tmp_path)
    [record] = read_records(tmp_path)
    assert record["step"] == 30 * REPEAT
    visits = record["planes"][0]["visits"]
    assert 25 <= visits.sum() <= 30  # one for each step, but for those beyond the map's edge
    assert record["planes"][0]["bonus"][visits > 0].mean() > 0


def test_means_are_over_what_was_added_since_they_were_taken():
    means = Means()
    means.add({"a": 1.0, "b": 4.0})
    means.add({"a": 2.0, "b": 0.0})
    assert means.take() == {"a": 1.5, "b": 2.0}
    means.add({"a": 7.0})
    again = Means()
    again.load_state_dict(means.state_dict())
    assert again.take() == {"a": 7.0}
    assert again.take() == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"report_every": 0}, "report_every is 0"), ({"train_fraction": 0.0}, "train_fraction is 0")],
)
def test_a_wrong_setting_is_named(settings, words):
    with pytest.raises(ValueError, match=words):
        OffPolicySettings(**settings)
