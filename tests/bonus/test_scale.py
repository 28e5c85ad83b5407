import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mimex.bonus.scale import BonusScale


def test_raw_bonus_is_weighed_by_beta_and_both_streams_are_kept():
    rewards = BonusScale(0.5).combine(torch.tensor([1.0, 2.0]), torch.tensor([4.0, 6.0]))
    assert rewards.total.tolist() == [3.0, 5.0]
    assert rewards.extrinsic.tolist() == [1.0, 2.0]
    assert rewards.intrinsic.tolist() == [2.0, 3.0]


def test_step_normalisation_by_hand():
    scale = BonusScale(1.0, "step")
    rewards = scale.combine(torch.zeros(4), torch.tensor([1.0, 3.0, 1.0, 3.0]))  # std 1
    assert rewards.intrinsic.tolist() == pytest.approx([1.0, 3.0, 1.0, 3.0], abs=1e-4)
    rewards = scale.combine(torch.zeros(2), torch.tensor([2.0, 2.0]), update=False)
    assert rewards.intrinsic.tolist() == pytest.approx([2.0, 2.0], abs=1e-4)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.lists(st.tuples(*[st.floats(0, 5, width=32)] * 2), min_size=2, max_size=12),
    cut=st.integers(1, 11),
    ends=st.sets(st.tuples(st.integers(0, 11), st.integers(0, 1))),
    episodic=st.booleans(),
)
def test_return_normalisation_runs_along_time_in_each_environment(rows, cut, ends, episodic):
    """The sums follow each environment through time, over rollouts (cleanrl#360 ran over envs)."""
    bonus = torch.tensor(rows)
    ended = torch.tensor([[(t, n) in ends for n in range(2)] for t in range(len(rows))])
    scale = BonusScale(1.0, "return", discount=0.9, episodic=episodic)
    for part in (slice(0, cut), slice(cut, None)):
        if len(bonus[part]):
            got = scale.combine(torch.zeros_like(bonus[part]), bonus[part], ended[part])
    sums, running = [], [0.0, 0.0]
    for t, row in enumerate(rows):
        for n in range(2):
            running[n] = 0.9 * running[n] + row[n]
            sums.append(running[n])
            if episodic and (t, n) in ends:
                running[n] = 0.0
    std = float(torch.tensor(sums, dtype=torch.float64).std(correction=0))
    expected = float(bonus[-1, -1]) / math.sqrt(std**2 + 1e-8)
    assert float(got.intrinsic[-1, -1]) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_step_by_step_equals_rollout_at_once():
    bonus = torch.rand(6, 3)
    at_once, stepwise = BonusScale(1.0, "return"), BonusScale(1.0, "return")
    at_once.combine(torch.zeros(6, 3), bonus)
    for row in bonus:
        stepwise.combine(torch.zeros(3), row)
    a, b = at_once.state_dict(), stepwise.state_dict()
    assert torch.allclose(a["sums"], b["sums"])
    assert torch.allclose(a["statistics"]["var"], b["statistics"]["var"])
    assert a["steps"] == b["steps"] == 18


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


def test_clip_is_on_the_normalised_bonus():
    rewards = BonusScale(2.0, clip=1.5).combine(torch.zeros(2), torch.tensor([1.0, 9.0]))
    assert rewards.intrinsic.tolist() == [2.0, 3.0]


def test_state_continues_bit_for_bit():
    chosen = {"normalise": "return", "schedule": "linear", "over_steps": 50}
    straight, broken = BonusScale(**chosen), BonusScale(**chosen)
    first, second = torch.rand(5, 2), torch.rand(5, 2)
    straight.combine(first, first)
    broken.combine(first, first)
    resumed = BonusScale(**chosen)
    resumed.load_state_dict(broken.state_dict())
    a, b = straight.combine(second, second), resumed.combine(second, second)
    assert torch.equal(a.total, b.total)
    assert straight.beta == resumed.beta


def test_bad_input_is_refused_with_step_and_environment():
    scale = BonusScale(normalise="return")
    bonus = torch.ones(3, 2)
    bonus[2, 1] = float("nan")
    with pytest.raises(ValueError, match="bonus is nan at step 2 of environment 1"):
        scale.combine(torch.ones(3, 2), bonus)
    with pytest.raises(ValueError, match="extrinsic is inf at step 0 of environment 1"):
        scale.combine(torch.tensor([0.0, float("inf")]), torch.ones(2))
    assert scale.steps == 0
    with pytest.raises(ValueError, match="same shape"):
        scale.combine(torch.ones(2), torch.ones(3))
    scale.combine(torch.ones(2), torch.ones(2))
    with pytest.raises(ValueError, match="3 environments; the steps before had 2"):
        scale.combine(torch.ones(3), torch.ones(3))
    for arguments, message in [
        ({"normalise": "std"}, "normalise='std' is unknown"),
        ({"schedule": "step"}, "schedule='step' is unknown"),
        ({"schedule": "linear"}, "needs over_steps"),
        ({"discount": 1.0}, "discount=1.0"),
        ({"clip": 0.0}, "clip=0.0"),
        ({"beta": float("inf")}, "beta=inf"),
    ]:
        with pytest.raises(ValueError, match=message):
            BonusScale(**arguments)
    with pytest.raises(ValueError, match="needs ended"):
        BonusScale(normalise="return", episodic=True).combine(torch.ones(2), torch.ones(2))
