import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.states import assert_refused_or_loaded

from mimex.bonus.scale import HALF_LIFE, WARMUP, BonusScale

UNIT = math.sqrt(1 - 0.99**2)


def warmed_up(scale=None, envs=1):
    """A scale after a warm-up with zeros."""
    scale = scale or BonusScale(1.0)
    scale.combine(torch.zeros(WARMUP, envs), torch.zeros(WARMUP, envs))
    return scale


def noise(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_raw_bonus_is_weighted_by_beta_and_both_rewards_are_returned():
    scale = BonusScale(0.5, normalize=False)
    rewards = scale.combine(torch.tensor([1.0, 2.0]), torch.tensor([4.0, 6.0]))
    assert rewards.total.tolist() == [3.0, 5.0]
    assert rewards.extrinsic.tolist() == [1.0, 2.0]
    assert rewards.intrinsic.tolist() == [2.0, 3.0]
    assert len(rewards) == 3  # can be unpacked


def test_there_is_no_bonus_during_the_warm_up():
    rewards = BonusScale(1.0).combine(torch.zeros(WARMUP + 1, 2), 1e6 * noise(WARMUP + 1, 2))
    assert not rewards.intrinsic[:WARMUP].any()
    assert rewards.intrinsic[WARMUP].any()


def test_the_normalized_bonus_matches_a_hand_computed_value():
    """A step of two environments after a warm-up of zeros."""
    scale = warmed_up(BonusScale(0.5), envs=2)
    intrinsic = scale.combine(torch.zeros(2), torch.tensor([1.0, 3.0])).intrinsic
    keep = 0.5 ** (1 / HALF_LIFE)
    rms = math.sqrt((1 + 9) / 2 * (1 - keep) / (1 - keep ** (WARMUP + 1)))
    torch.testing.assert_close(intrinsic, 0.5 * UNIT * torch.tensor([1.0, 3.0]) / rms)


def test_the_scale_tracks_a_falling_bonus():
    """Raw bonuses fall to a thousandth in training; a novel state is still rewarded."""
    steps = 6_000
    raw = torch.logspace(0, -3, steps).unsqueeze(1) * noise(steps, 8)
    intrinsic = BonusScale(1.0).combine(torch.zeros(steps, 8), raw).intrinsic.mean(1)
    assert float(intrinsic[-500:].mean()) > 0.3 * float(intrinsic[WARMUP : WARMUP + 500].mean())


def test_returns_of_rare_bonuses_have_a_standard_deviation_of_beta():
    """One step in a thousand has a bonus."""
    steps, envs, rate, gamma = 4_000, 512, 0.001, 0.99
    events = noise(steps, envs) < rate
    intrinsic = BonusScale(2.0).combine(torch.zeros(steps, envs), events.double()).intrinsic
    late = intrinsic[2_000:][events[2_000:]]
    assert float(late.mean()) == pytest.approx(2.0 * UNIT / math.sqrt(rate), rel=0.15)
    returns, found = torch.zeros(envs), []
    for rewards in intrinsic.float():
        returns = gamma * returns + rewards
        found.append(returns)
    assert float(torch.stack(found[2_000:]).std()) == pytest.approx(2.0, rel=0.2)


def test_beta_is_reduced_while_there_is_extrinsic_reward_and_recovers():
    scale = BonusScale(1.0, reward_decay=0.1)
    quiet, rewarded = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, 0.5]])
    bonus = torch.ones(1, 2)
    scale.combine(quiet, bonus)
    assert scale.beta == 1.0  # costs are not rewards
    scale.combine(rewarded, bonus)
    assert scale.beta == 0.1
    scale.combine(quiet.expand(HALF_LIFE - 1, 2), bonus.expand(HALF_LIFE - 1, 2))
    assert scale.beta == 0.1
    scale.combine(quiet, bonus)
    assert scale.beta == 1.0
    scale.combine(torch.cat([rewarded, quiet, quiet]), bonus.expand(3, 2))
    assert scale.beta == 0.1


def test_the_survival_bonus_cancels_the_mean_cost():
    scale = BonusScale(0.5, survival_bonus=1.0)
    rewards = scale.combine(torch.tensor([-2.0, -4.0]), torch.tensor([0.01, 0.03]))
    assert rewards.survival.tolist() == pytest.approx([3.0, 3.0])
    assert rewards.total.tolist() == pytest.approx([1.0, -1.0])
    # Positive rewards are no cost: success does not raise the survival bonus.
    free = BonusScale(0.5, survival_bonus=1.0).combine(torch.tensor([6.0]), torch.tensor([1.0]))
    assert free.survival.tolist() == [0.0]
    none = BonusScale(0.5, survival_bonus=1.0).combine(torch.tensor([-2.0]), torch.tensor([0.0]))
    assert none.total.tolist() == [-2.0]


@settings(deadline=None, max_examples=50)
@given(size=st.floats(-6, 6), envs=st.integers(1, 3), seed=st.integers(0, 99))
def test_the_reward_does_not_depend_on_the_size_of_the_bonus(size, envs, seed):
    raw = noise(WARMUP + 20, envs, seed=seed)
    one = BonusScale().combine(torch.ones_like(raw), raw)
    other = BonusScale().combine(torch.ones_like(raw), raw * 10**size)
    torch.testing.assert_close(one.intrinsic, other.intrinsic)


@pytest.mark.parametrize("envs", [1, 4, 8])
def test_there_are_no_spikes_at_the_start(envs):
    """At the n-th step no bonus exceeds sqrt(n * envs) times the rms."""
    raw = noise(WARMUP + 50, envs) ** 8
    scale = BonusScale(1.0)
    earned = torch.stack([scale.combine(torch.ones(envs), row).intrinsic for row in raw])
    most = UNIT * 1.1 * (torch.arange(WARMUP + 1, WARMUP + 51) * envs).sqrt()
    assert bool((earned[WARMUP:].amax(1) <= most + 1e-6).all())


def test_step_by_step_equals_one_call_per_rollout():
    bonus, reward = noise(WARMUP + 6, 3), noise(WARMUP + 6, 3, seed=1) - 0.5
    at_once, stepwise = (BonusScale(survival_bonus=1.0, reward_decay=1.0) for _ in range(2))
    expected = at_once.combine(reward, bonus)
    for t in range(len(bonus)):
        row = stepwise.combine(reward[t], bonus[t])
        assert torch.equal(row.total, expected.total[t])
    assert at_once.state_dict() == stepwise.state_dict()


def test_without_update_the_statistics_do_not_change():
    scale = warmed_up(envs=2)
    scale.combine(torch.ones(2), torch.tensor([0.0, 2.0]))
    before = scale.state_dict()
    first = scale.combine(torch.ones(2), torch.full((2,), 3.0), update=False).intrinsic[0]
    assert first > 0
    assert scale.state_dict() == before


def test_integer_and_boolean_rewards_are_accepted():
    rewards = BonusScale(0.5, normalize=False).combine(np.array([1, -1]), np.array([2, 0]))
    assert rewards.total.tolist() == [2.0, -1.0]
    rewards = BonusScale(0.5).combine(np.array([True, False]), torch.tensor([0.0, 0.0]))
    assert rewards.total.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_an_empty_batch_changes_nothing(shape):
    scale = warmed_up()
    before = scale.state_dict()
    assert scale.combine(torch.zeros(shape), torch.zeros(shape)).total.shape == shape
    assert scale.state_dict() == before


def test_no_bonus_has_no_reward():
    rewards = BonusScale().combine(torch.ones(300, 2), torch.zeros(300, 2))
    torch.testing.assert_close(rewards.total, torch.ones(300, 2))
    assert rewards.share == 0.0


@pytest.mark.parametrize(
    ("schedule", "half"), [("constant", 1.0), ("linear", 0.6), ("cosine", 0.6)]
)
def test_beta_follows_its_schedule_in_environment_steps(schedule, half):
    scale = BonusScale(1.0, schedule=schedule, final_beta=0.2, over_steps=100)
    seen = []
    for _ in range(4):
        seen.append(scale.beta)
        scale.combine(torch.zeros(25, 2), torch.zeros(25, 2))
    end = 1.0 if schedule == "constant" else 0.2
    assert seen == pytest.approx([1.0, half, end, end])


def test_the_cosine_schedule_matches_a_hand_computed_value():
    scale = BonusScale(1.0, schedule="cosine", final_beta=0.0, over_steps=3)
    scale.combine(torch.zeros(1), torch.zeros(1))
    assert scale.beta == pytest.approx(0.75)  # (1 + cos(pi / 3)) / 2


def test_state_continues_bit_for_bit():
    chosen = {"schedule": "linear", "over_steps": 500, "survival_bonus": 0.5, "reward_decay": 0.5}
    straight, broken = BonusScale(**chosen), BonusScale(**chosen)
    first, second = noise(WARMUP + 5, 2), noise(5, 2, seed=1)
    straight.combine(first - 0.5, first)
    broken.combine(first - 0.5, first)
    resumed = BonusScale(**chosen)
    resumed.load_state_dict(broken.state_dict())
    a, b = straight.combine(-second, second), resumed.combine(-second, second)
    assert torch.equal(a.total, b.total)
    assert straight.beta == resumed.beta


def test_a_mismatched_state_raises_and_changes_nothing():
    scale = BonusScale()
    scale.combine(torch.ones(4), torch.rand(4))
    before = scale.state_dict()
    for damaged in (
        {"steps": 3},
        {"steps": 3, "statistics": {}},
        before | {"square": float("nan")},
        before | {"cost": -1.0},
        before | {"steps": "many"},
        *(before | {name: odd} for name in ("steps", "rows") for odd in (-1, np.inf)),
        *(before | {"unrewarded": odd} for odd in (-2, np.inf)),
    ):
        with pytest.raises(ValueError, match=r"damaged|many"):
            scale.load_state_dict(damaged)
        assert scale.state_dict() == before
    assert assert_refused_or_loaded(scale, before) == 4 * len(before)


def test_invalid_input_raises_with_step_and_environment():
    scale = BonusScale()
    bonus = torch.ones(3, 2)
    bonus[2, 1] = float("nan")
    with pytest.raises(ValueError, match="bonus is nan at step 2 of environment 1"):
        scale.combine(torch.ones(3, 2), bonus)
    with pytest.raises(ValueError, match="extrinsic is inf at step 0 of environment 1"):
        scale.combine(torch.tensor([0.0, float("inf")]), torch.ones(2))
    with pytest.raises(ValueError, match="same shape"):
        scale.combine(torch.ones(2), torch.ones(3))
    with pytest.raises(ValueError, match="bonus has complex numbers"):
        scale.combine(torch.ones(2), torch.ones(2, dtype=torch.complex64))
    assert scale.state_dict() == BonusScale().state_dict()
    for arguments, message in [
        ({"schedule": "step"}, "schedule='step' is unknown"),
        ({"schedule": "linear"}, "needs over_steps"),
        ({"discount": 1.0}, "discount=1.0"),
        ({"beta": None}, "beta=None"),
        ({"beta": float("inf")}, "beta=inf"),
        ({"survival_bonus": float("nan")}, "survival_bonus=nan"),
    ]:
        with pytest.raises(ValueError, match=message):
            BonusScale(**arguments)


def test_steps_without_a_score_do_not_enter_the_rms():
    scale, alone = BonusScale(), BonusScale()
    scored = torch.tensor([[True, True, False]]).expand(70, 3)
    bonus = torch.tensor([[2.0, 4.0, 0.0]]).expand(70, 3)
    with_others = scale.combine(torch.zeros(70, 3), bonus, scored=scored)
    only_scored = alone.combine(torch.zeros(70, 2), bonus[:, :2])
    torch.testing.assert_close(with_others.intrinsic[:, :2], only_scored.intrinsic)
    assert with_others.intrinsic[-1, 0] > 0
    assert (with_others.intrinsic[:, 2] == 0).all()
