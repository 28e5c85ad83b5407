import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.states import assert_refused_or_loaded

from mimex.bonus.scale import LARGEST, MEASURED, BonusScale


def test_raw_bonus_is_weighed_by_beta_and_both_streams_are_kept():
    rewards = BonusScale(0.5, "raw").combine(torch.tensor([1.0, 2.0]), torch.tensor([4.0, 6.0]))
    assert rewards.total.tolist() == [3.0, 5.0]
    assert rewards.extrinsic.tolist() == [1.0, 2.0]
    assert rewards.intrinsic.tolist() == [2.0, 3.0]


def test_an_average_bonus_is_paid_beta_times_the_average_reward_of_the_task():
    rewards = BonusScale(0.5).combine(torch.tensor([-2.0, 4.0]), torch.tensor([0.01, 0.03]))
    assert rewards.intrinsic.tolist() == pytest.approx([0.5 * 3 * 0.5, 0.5 * 3 * 1.5])


def test_the_tasks_size_falls_with_its_costs_and_does_not_rise_with_success():
    scale = BonusScale(1.0)
    first, later = (torch.full((steps, 1), 1.0) for steps in (MEASURED, 6_000))
    assert float(scale.combine(-4 * first, first).intrinsic[-1]) == pytest.approx(4.0)
    assert float(scale.combine(9 * later, later).intrinsic[-1]) == pytest.approx(4.0)
    assert float(scale.combine(-0.5 * later, later).intrinsic[-1]) == pytest.approx(0.5, rel=0.01)
    assert float(scale.combine(0 * later, later).intrinsic[-1]) == pytest.approx(
        0.01
    )  # returns of 1


def test_living_on_is_paid_beside_the_bonus_and_never_without_one():
    costs, raw = torch.tensor([-2.0, -4.0]), torch.tensor([0.01, 0.03])
    rewards = BonusScale(0.5, alive=1.0).combine(costs, raw)
    assert rewards.living.tolist() == pytest.approx([3.0, 3.0])  # an average step costs 3
    assert rewards.intrinsic.tolist() == pytest.approx([3 + 0.75, 3 + 2.25])
    total, *_ = rewards
    assert total.tolist() == pytest.approx([-2 + 3.75, -4 + 5.25])
    assert len(rewards) == 3  # as loops take them apart
    assert BonusScale(alive=1.0).combine(costs, torch.zeros(2)).total.tolist() == costs.tolist()
    # Where nothing costs there is nothing to cover: novelty is all that is paid.
    free = BonusScale(0.5, alive=1.0).combine(torch.zeros(2), torch.tensor([1.0, 3.0]))
    assert free.living.tolist() == [0.0, 0.0]
    torch.testing.assert_close(free.total, torch.tensor([0.0025, 0.0075]))
    with pytest.raises(ValueError, match=r"alive=1.*unit='task'"):
        BonusScale(0.05, "raw", alive=1.0)


def test_where_the_task_pays_nothing_bonuses_add_up_to_a_return_of_beta():
    scale = BonusScale(0.5, discount=0.9)
    rewards = scale.combine(torch.zeros(200, 1), torch.full((200, 1), 7.0))
    total = sum(0.9**t * float(r) for t, r in enumerate(rewards.intrinsic[:, 0]))
    assert total == pytest.approx(0.5)


@settings(deadline=None, max_examples=50)
@given(
    size=st.floats(-8, 8),
    bonus=st.lists(st.floats(0.125, 5.0, width=32), min_size=1, max_size=20),
    envs=st.integers(1, 3),
)
def test_what_is_paid_does_not_depend_on_the_size_of_the_bonus(size, bonus, envs):
    raw = torch.tensor(bonus, dtype=torch.float64).unsqueeze(1).expand(-1, envs)
    one = BonusScale().combine(torch.ones_like(raw), raw)
    other = BonusScale().combine(torch.ones_like(raw), raw * 10**size)
    torch.testing.assert_close(one.intrinsic, other.intrinsic)


@pytest.mark.parametrize("envs", [1, 4, 8])
def test_the_start_cannot_spike(envs):
    """The first bonus is an average one, the n-th at most n, whatever the raw bonuses are."""
    raw = torch.rand(50, envs, generator=torch.Generator().manual_seed(0)) ** 8
    scale = BonusScale(1.0)
    paid = torch.stack([scale.combine(torch.ones(envs), row).intrinsic for row in raw])
    assert float(paid[0].mean()) == pytest.approx(1.0)
    assert bool((paid.mean(1) <= torch.arange(1, 51) + 1e-4).all())
    assert float(paid.max()) <= LARGEST


def test_averages_follow_a_bonus_that_fades():
    """Raw bonuses fall to a thousandth while a model learns; what is paid does not."""
    steps = 6_000
    raw = torch.logspace(0, -3, steps).unsqueeze(1)
    paid = BonusScale(1.0).combine(torch.ones(steps, 1), raw).intrinsic
    assert float(paid[-500:].mean()) > 0.4
    assert float(BonusScale(1.0, half_life=1e9).combine(paid, raw).intrinsic[-1]) < 0.02


def test_the_first_steps_are_averaged_until_they_are_enough():
    scale = BonusScale(0.1)
    rewards = torch.tensor([[1.0], [4.0], [1.0]])
    paid = scale.combine(rewards, torch.ones(3, 1)).intrinsic[:, 0]
    # 1; (1 + 2 * 4) / 3; (1 + 2 * 4 + 3 * 1) / 6
    assert paid.tolist() == pytest.approx([0.1, 0.3, 0.2])


def test_step_by_step_equals_rollout_at_once():
    bonus, reward = torch.rand(6, 3), torch.randn(6, 3)
    at_once, stepwise = BonusScale(), BonusScale()
    paid = at_once.combine(reward, bonus)
    for t in range(6):
        row = stepwise.combine(reward[t], bonus[t])
        assert torch.equal(row.total, paid.total[t])
    assert at_once.state_dict() == stepwise.state_dict()


def test_without_update_nothing_is_taken_in():
    scale = BonusScale(1.0)
    scale.combine(torch.ones(2), torch.ones(2))
    before = scale.state_dict()
    assert scale.combine(torch.ones(2), torch.full((2,), 3.0), update=False).intrinsic[0] == 3.0
    assert scale.state_dict() == before


def test_integers_and_booleans_are_numbers():
    rewards = BonusScale(0.5, "raw").combine(np.array([1, -1]), np.array([2, 0]))
    assert rewards.total.tolist() == [2.0, -1.0]
    rewards = BonusScale(0.5).combine(np.array([True, False]), torch.tensor([0.0, 0.0]))
    assert rewards.total.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_no_steps_are_no_pay_and_change_nothing(shape):
    scale = BonusScale(found=0.1)
    scale.combine(torch.ones(2), torch.ones(2))
    before = scale.state_dict()
    assert scale.combine(torch.zeros(shape), torch.zeros(shape)).total.shape == shape
    assert scale.state_dict() == before


def test_no_bonus_at_all_pays_nothing():
    rewards = BonusScale().combine(torch.ones(3, 2), torch.zeros(3, 2))
    assert torch.equal(rewards.total, torch.ones(3, 2))
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


def test_cosine_by_hand():
    scale = BonusScale(1.0, schedule="cosine", final_beta=0.0, over_steps=3)
    scale.combine(torch.zeros(1), torch.zeros(1))
    assert scale.beta == pytest.approx(0.75)  # (1 + cos(pi / 3)) / 2


def test_novelty_gives_way_while_the_task_pays_and_takes_over_when_it_no_longer_does():
    scale = BonusScale(1.0, found=0.1, half_life=4)
    quiet, paid = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, 0.5]])
    bonus = torch.ones(1, 2)
    seen = []
    for reward in (quiet, paid, quiet, quiet, quiet, quiet, paid):
        scale.combine(reward, bonus)
        seen.append(scale.beta)
    assert seen == [1.0, 0.1, 0.1, 0.1, 0.1, 1.0, 0.1]
    scale.combine(torch.cat([paid, quiet, quiet]), bonus.expand(3, 2))
    assert scale.beta == 0.1
    scale.combine(torch.cat([quiet, quiet]), bonus.expand(2, 2))
    assert scale.beta == 1.0  # four steps ago
    costs = BonusScale(1.0, found=0.1)
    costs.combine(torch.zeros(1, 2), bonus)
    assert costs.beta == 1.0  # nothing is no pay


def test_a_state_from_before_pay_was_looked_for_is_taken():
    scale = BonusScale(found=0.1)
    scale.combine(torch.ones(4), torch.rand(4))
    before = scale.state_dict()
    del before["since"]
    scale.load_state_dict(before)
    assert scale.beta == BonusScale().beta  # as if there had been none


def test_state_continues_bit_for_bit():
    chosen = {"schedule": "linear", "over_steps": 50, "found": 0.5}
    straight, broken = BonusScale(**chosen), BonusScale(**chosen)
    first, second = torch.rand(5, 2), torch.rand(5, 2)
    straight.combine(first, first)
    broken.combine(first, first)
    resumed = BonusScale(**chosen)
    resumed.load_state_dict(broken.state_dict())
    a, b = straight.combine(second, second), resumed.combine(second, second)
    assert torch.equal(a.total, b.total)
    assert straight.beta == resumed.beta


def test_a_state_that_does_not_fit_changes_nothing():
    scale = BonusScale()
    scale.combine(torch.ones(4), torch.rand(4))
    before = scale.state_dict()
    for damaged in (
        {"steps": 3},
        {"steps": 3, "statistics": {}},
        before | {"bonus": float("nan")},
        before | {"steps": "many"},
        *(before | {name: odd} for name in ("steps", "measured") for odd in (-1, 0.5, np.inf)),
        *(before | {"since": odd} for odd in (-2, 0.5, np.inf)),
    ):
        with pytest.raises(ValueError, match=r"damaged|many"):
            scale.load_state_dict(damaged)
        assert scale.state_dict() == before
    # Without "since" it is a state from before.
    assert assert_refused_or_loaded(scale, before) == 4 * len(before) - 1


def test_bad_input_is_refused_with_step_and_environment():
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
        ({"unit": "return"}, "unit='return' is unknown: use one of task, raw"),
        ({"schedule": "step"}, "schedule='step' is unknown"),
        ({"schedule": "linear"}, "needs over_steps"),
        ({"discount": 1.0}, "discount=1.0"),
        ({"half_life": 0.0}, "half_life=0.0"),
        ({"half_life": float("inf")}, "half_life=inf"),
        ({"half_life": 1e308}, r"half_life=1e\+308"),
        ({"beta": None}, "beta=None"),
        ({"beta": float("inf")}, "beta=inf"),
    ]:
        with pytest.raises(ValueError, match=message):
            BonusScale(**arguments)


@pytest.mark.parametrize("word", ["normalise", "normalize"])
def test_the_words_of_before_are_answered_with_a_hint(word):
    with pytest.raises(TypeError, match=f"no {word}=.*unit='raw'"):
        BonusScale(0.1, **{word: "return"})
