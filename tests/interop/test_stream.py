import copy
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.probe import NotingBonus
from tests.states import assert_refused_or_loaded, same

from mimex import E3B, ICM, RND, BonusScale, MIMEx
from mimex.interop.stream import BonusStream

BOX, TWO = spaces.Box(-np.inf, np.inf, (6,)), spaces.Discrete(3)


def rows(*steps):
    """Observations as of ProbeEnv: environment n, episode 0, and the given steps."""
    return np.array([[n, 0, step, 0, 0, 0] for n, step in enumerate(steps)], np.float32)


def step_number(window):
    return window.features[:, -1, 2]


@pytest.mark.parametrize("at_once", [False, True])
def test_reset_steps_are_neither_scored_nor_trained_on(at_once):
    bonus = NotingBonus(3, step_number)
    stream = BonusStream(
        bonus, 2, BOX, TWO, beta=BonusScale(10.0, normalize=False), learn_every=None
    )
    stream.per_rollout = at_once
    stream.start(rows(0, 0))
    rewards = [
        stream.step([0, 0], rows(1, 1), [1.0, 2.0], [True, False]),
        stream.step([0, 0], rows(0, 2), [0.0, 4.0], [False, False], ignored=[True, False]),
    ]
    if at_once:
        assert [p.total.tolist() for p in rewards] == [[1.0, 2.0], [0.0, 4.0]]
        settled = stream.rollout_rewards()
        totals, intrinsic = settled.total.tolist(), settled.intrinsic.tolist()
    else:
        totals = [p.total.tolist() for p in rewards]
        intrinsic = [p.intrinsic.tolist() for p in rewards]
    assert totals == [[11.0, 12.0], [0.0, 24.0]]
    assert intrinsic == [[10.0, 10.0], [0.0, 20.0]]
    assert sum(map(len, bonus.windows)) == stream.transitions == 3
    assert stream.reward_sums == {"extrinsic": 7.0, "intrinsic": 40.0}


@pytest.mark.parametrize("at_once", [False, True])
def test_reset_steps_are_excluded_from_averages(at_once):
    """Every real step has a bonus of 2, so the rms is 2."""
    bonus = NotingBonus(3, lambda window: torch.full((len(window),), 2.0))
    scale = BonusScale(0.5, reward_decay=1.0, schedule="linear", over_steps=1000)
    stream = BonusStream(bonus, 2, BOX, TWO, beta=scale, learn_every=1)
    stream.per_rollout = at_once
    stream.start(rows(0, 0))
    rewards, ignored = [], np.array([[False, False], [True, False], [True, True], [False, True]])
    for resets in ignored:
        step = stream.step([0, 0], rows(1, 1), 1.0 * ~resets, [False] * 2, ignored=resets)
        rewards.append(step.intrinsic)
    intrinsic = stream.rollout_rewards().intrinsic if at_once else torch.stack(rewards)
    assert intrinsic[torch.as_tensor(ignored)].tolist() == [0.0] * 4
    unit = 0.5 * math.sqrt(1 - 0.99**2)
    assert intrinsic[~torch.as_tensor(ignored)].tolist() == pytest.approx([unit] * 4, rel=4e-3)
    assert scale.steps == stream.transitions == 4
    assert sum(map(len, bonus.windows)) == (4 if at_once else 8)  # scored and learned, once each
    assert scale.state_dict()["rows"] == 3  # steps with a real transition
    assert stream.report["bonus/mean"] == 2.0


@pytest.mark.parametrize("at_once", [False, True])
def test_the_report_averages_over_recent_steps(at_once):
    """One of 15 steps has an extrinsic reward, five steps before the report."""
    bonus = NotingBonus(3, lambda window: torch.ones(len(window)))
    stream = BonusStream(
        bonus, 2, BOX, TWO, beta=BonusScale(0.1, normalize=False), learn_every=None
    )
    stream.per_rollout = at_once
    stream.start(rows(0, 0))
    for t in range(15):
        stream.step([0, 0], rows(1, 1), [9.0 * (t == 9)] * 2, [False] * 2)
    if at_once:
        stream.rollout_rewards()
    # a reward of 9 and 15 bonuses of 0.1; the half-life is 300 steps
    assert stream.report["bonus/share"] == pytest.approx(1.5 / 10.5, abs=0.01)
    assert stream.report["bonus/reward"] == pytest.approx(0.1)
    loaded = BonusStream(
        bonus, 2, BOX, TWO, beta=BonusScale(0.1, normalize=False), learn_every=None
    )
    loaded.load_state_dict(stream.state_dict())
    for one in (stream, loaded):
        one.per_rollout = False
        one.step([0, 0], rows(1, 1), [0.0] * 2, [False] * 2)
    assert loaded.report == stream.report


def test_a_rollout_scores_each_chunk_before_training_on_it():
    observations = np.random.default_rng(0).normal(size=(9, 4, 6)).astype(np.float32)
    stream = BonusStream(RND(6), 4, BOX, TWO, beta=1.0, learn_every=16)
    stream.per_rollout = True
    stream.start(observations[0])
    for row in observations[1:]:
        stream.step([0] * 4, row, np.zeros(4), [False] * 4)
    rewards = stream.rollout_rewards().intrinsic
    fresh = RND(6)
    plain = BonusStream(fresh, 4, BOX, TWO, beta=1.0, learn_every=16)
    plain.start(observations[0])
    expected = [plain.step([0] * 4, r, np.zeros(4), [False] * 4) for r in observations[1:]]
    torch.testing.assert_close(rewards, torch.stack([e.intrinsic for e in expected]))
    assert stream.bonus.steps == fresh.steps == 2


def test_a_state_with_another_number_of_environments_raises_and_changes_nothing():
    def stream(num_envs):
        return BonusStream(MIMEx(), num_envs, BOX, TWO, learn_every=2)

    saved, other = stream(3), stream(2)
    saved.start(rows(0, 0, 0))
    saved.step([0, 0, 0], rows(1, 1, 1), np.zeros(3), [False] * 3)
    with pytest.raises(ValueError, match="features"):
        other.load_state_dict(saved.state_dict())
    assert other.bonus.steps == 0
    assert other.transitions == 0


def test_loading_a_corrupted_state_changes_nothing():
    def stream():
        return BonusStream(ICM(None, 3, hidden=8, embed_dim=8), 2, BOX, TWO)

    saved, lazy, other = stream(), stream(), stream()
    for one in (saved, other):
        one.start(rows(0, 0))
        one.step([0, 1], rows(1, 1), np.zeros(2), [False] * 2)
    for one in (lazy, other):
        assert assert_refused_or_loaded(one, saved.state_dict()) > 50
        one.load_state_dict(saved.state_dict())
        assert same(one.state_dict(), saved.state_dict())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learn_every": float("nan")}, "learn_every=nan"),
        ({"learn_every": float("inf")}, "learn_every=inf"),
        ({"learn_every": 0}, "learn_every=0"),
        ({"train_fraction": float("nan")}, "train_fraction=nan"),
    ],
)
def test_invalid_settings_raise(settings, words):
    with pytest.raises(ValueError, match=words):
        BonusStream(RND(6), 2, BOX, TWO, **settings)


def test_arrays_of_a_wrong_shape_raise_with_their_name_and_change_nothing():
    stream = BonusStream(ICM(6, 3), 2, BOX, TWO)
    before = stream.state_dict()
    with pytest.raises(ValueError, match="which has shape"):
        stream.start(rows(0, 0), np.ones(3, bool))
    with pytest.raises(ValueError, match="features has shape"):
        stream.start(rows(0, 0, 0))
    assert same(before, stream.state_dict())
    stream.start(rows(0, 0))
    before = stream.state_dict()
    good = {
        "actions": [0, 1],
        "observations": rows(1, 1),
        "extrinsic": np.zeros(2),
        "ended": [False, False],
    }
    for name, value, words in [
        ("ended", [False], "ended has shape"),
        ("ended", [[False, True]], "ended has shape"),
        ("ended", False, "ended has shape"),
        ("extrinsic", np.zeros(3), "extrinsic has shape"),
        ("actions", [0], "actions"),
        ("actions", [0, 1, 2], "actions"),
        ("actions", [0, 7], "actions are no batch of values"),
        ("actions", ["a", "b"], "actions are no batch of values"),
        ("observations", rows(1, 1)[:, :5], "features has shape"),
        ("observations", rows(1), "features has shape"),
        ("ignored", [True], "ignored has shape"),
    ]:
        with pytest.raises(ValueError, match=words):
            stream.step(**(good | {name: value}))
        assert same(before, stream.state_dict()), name


@pytest.mark.parametrize("make", [RND, MIMEx, lambda: E3B(None, 3)])
def test_an_invalid_step_raises_and_changes_nothing(make):
    stream = BonusStream(make(), 2, BOX, TWO, learn_every=4)
    stream.start(rows(0, 0))
    stream.step([0, 1], rows(1, 1), [1.0, 2.0], [False] * 2)
    before, odd = copy.deepcopy(stream.state_dict()), rows(2, 2)
    odd[1, 3] = np.nan
    for observations, extrinsic, words in [
        (odd, [1.0, 2.0], "observations has nan"),
        (rows(2, 2), [1.0, np.nan], "extrinsic has nan"),
        (rows(2, 2) * 1j, [1.0, 2.0], "complex"),
    ]:
        with pytest.raises(ValueError, match=words):
            stream.step([0, 1], observations, extrinsic, [False] * 2)
        assert same(before, stream.state_dict())
    with pytest.raises(ValueError, match=r"real is torch\.bool of shape"):
        stream.combine(torch.ones(1, 2), torch.ones(1, 2), np.array([True]))
    assert same(before, stream.state_dict())
    stream.step([0, 1], rows(2, 2), [1.0, 2.0], [False] * 2)


def test_without_learn_every_the_bonus_is_never_trained():
    bonus = RND(6)
    stream = BonusStream(bonus, 1, BOX, TWO, learn_every=None)
    stream.start(rows(0))
    for step in range(1, 600):
        stream.step([0], rows(step), np.zeros(1), [False])
    assert bonus.steps == 0


def play(stream, observations, ends, first=0):
    """Steps through observations (T, N, 6); environments that end reset in the same step."""
    rewards = []
    for t in range(first + 1, len(observations)):
        ended = np.array([t in of_env for of_env in ends])
        finals = [observations[t][n] + 100 for n in np.flatnonzero(ended)] if ended.any() else None
        step = stream.step([0] * 2, observations[t], np.zeros(2), ended, finals=finals)
        rewards.append(step.intrinsic)
    return rewards


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_an_episodic_bonus_sees_each_step_of_an_episode_once(at_once, stride):
    observations = np.random.default_rng(0).normal(size=(20, 2, 6)).astype(np.float32)
    ends = ({7, 15}, {11})
    bonus = E3B(embed_dim=4, lr=1e-12)  # features that do not change
    stream = BonusStream(
        bonus, 2, BOX, TWO, beta=BonusScale(1.0, normalize=False), learn_every=8, stride=stride
    )
    stream.per_rollout = at_once
    stream.start(observations[0])
    rewards = play(stream, observations, ends)
    rewards = stream.rollout_rewards().intrinsic if at_once else torch.stack(rewards)

    def embed(observation):
        return bonus.embed(torch.as_tensor(observation)).detach().double().numpy()

    for env in (0, 1):
        matrix = None
        for t in range(1, 20):
            starts = t == 1 or t - 1 in ends[env]
            if starts:
                matrix = bonus.ridge * np.eye(4)
                if stride == 1:  # the first observation is in the window, and not rewarded
                    first = embed(observations[t - 1][env])
                    matrix += np.outer(first, first)
            phi = embed(observations[t][env] + (100 if t in ends[env] else 0))
            expected = phi @ np.linalg.inv(matrix) @ phi
            if starts and stride > 1:  # the window holds nothing before its newest step
                expected = 0.0
            assert float(rewards[t - 1, env]) == pytest.approx(expected, rel=2e-3), (t, env)
            matrix += np.outer(phi, phi)
    assert bonus.steps > 0


def test_an_episodic_bonus_continues_an_episode_after_loading():
    observations = np.random.default_rng(0).normal(size=(20, 2, 6)).astype(np.float32)
    streams = [BonusStream(E3B(seed=n), 2, BOX, TWO, learn_every=8) for n in (0, 1)]
    straight, resumed = streams
    straight.start(observations[0])
    play(straight, observations[:10], ({4}, set()))
    resumed.load_state_dict(straight.state_dict())
    ends = ({15}, {12})
    later = [play(stream, observations, ends, first=9) for stream in streams]
    assert all(torch.equal(a, b) for a, b in zip(*later, strict=True))


def test_an_evaluation_does_not_change_an_episodic_bonus():
    stream = BonusStream(E3B(6, 3), 2, BOX, TWO)
    stream.training = False
    stream.start(rows(0, 0))
    stream.step([0, 0], rows(1, 1), [1.0, 2.0], [False, False])
    assert stream.bonus.inverses is None
