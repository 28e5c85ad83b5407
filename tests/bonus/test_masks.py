import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mimex.bonus import masking
from mimex.bonus.masking import masked_count
from mimex.bonus.masks import (
    AllMask,
    FeatureMask,
    LastMask,
    NextStepMask,
    SpanMask,
    TimeMask,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@st.composite
def valid_masks(draw):
    """Left-padded validity of a few windows of one length from 2 to 10."""
    length = draw(st.integers(2, 10))
    sizes = draw(st.lists(st.integers(0, length), min_size=1, max_size=6))
    return torch.tensor([[step >= length - size for step in range(length)] for size in sizes])


@pytest.mark.parametrize(
    ("length", "ratio", "hidden"),
    [
        # kept = floor(L * (1 - ratio)); rounding made the released code keep nothing here:
        (5, 0.8, 4),
        (10, 0.9, 9),
        # floor gives 0 here, but one step stays visible:
        (2, 0.7, 1),
        (3, 0.7, 2),
        # and by hand:
        (5, 0.7, 4),
        (6, 0.7, 5),
        (4, 0.7, 3),
        (10, 0.7, 7),
        (5, 0.2, 1),
        (5, 0.0, 1),
        (10, 0.5, 5),
        (1920, 0.95, 1824),
    ],
)
def test_mask_counts_are_exact_and_leave_something_visible(length, ratio, hidden):
    assert masked_count(length, ratio) == hidden
    mask = TimeMask(ratio).sample(torch.ones(64, length, dtype=torch.bool), generator())
    assert mask.sum(1).tolist() == [hidden] * 64
    assert TimeMask(ratio).effective_ratio(length) == pytest.approx(hidden / length)


@settings(deadline=None)
@given(valid_masks(), st.floats(0, 0.999), st.integers(0, 100))
def test_time_and_span_masks_mask_the_exact_count_of_valid_steps(valid, ratio, seed):
    for mask in (TimeMask(ratio), SpanMask(ratio)):
        hidden = mask.sample(valid, generator(seed))
        assert not (hidden & ~valid).any(), "padding was hidden"
        expected = [masked_count(int(n), ratio) for n in valid.sum(1)]
        assert hidden.sum(1).tolist() == expected


@settings(deadline=None)
@given(valid_masks(), st.integers(0, 100))
def test_masks_cover_valid_steps_only_and_leave_one_visible(valid, seed):
    sizes = valid.sum(1)
    for mask in (TimeMask(0.99), SpanMask(0.99), LastMask(), NextStepMask()):
        hidden = mask.sample(valid, generator(seed))
        assert not (hidden & ~valid).any()
        enough = sizes >= 2
        assert (hidden.sum(1)[enough] >= 1).all()
        assert (hidden.sum(1)[enough] < sizes[enough]).all()
        assert (hidden.sum(1)[~enough] == 0).all()


@settings(deadline=None)
@given(valid_masks(), st.integers(1, 7), st.floats(0, 0.999))
def test_a_feature_mask_masks_the_exact_count_of_entries(valid, feature_dim, ratio):
    hidden = FeatureMask(ratio, feature_dim).sample(valid, generator())
    assert hidden.shape == (*valid.shape, feature_dim)
    assert not (hidden & ~valid.unsqueeze(2)).any()
    expected = [masked_count(int(n) * feature_dim, ratio) for n in valid.sum(1)]
    assert hidden.flatten(1).sum(1).tolist() == expected


@settings(deadline=None)
@given(valid_masks(), st.integers(2, 7), st.floats(0, 0.999), st.integers(0, 100))
def test_a_tube_mask_masks_the_exact_count_of_features_in_all_valid_steps(
    valid, feature_dim, ratio, seed
):
    mask = FeatureMask(ratio, feature_dim, tube=True)
    hidden = mask.sample(valid, generator(seed))
    count = masked_count(feature_dim, ratio)
    features = hidden.any(1)  # (B, D)
    assert torch.equal(hidden, features.unsqueeze(1) & valid.unsqueeze(2))
    assert features.sum(1).tolist() == [count * int(n > 0) for n in valid.sum(1)]
    assert mask.effective_ratio(valid.shape[1]) == count / feature_dim


def test_how_often_a_masked_feature_is_visible_at_another_step():
    """Drawn independently, in 1 - 0.8^4 = 59 % of cases; in a tube never."""
    valid = torch.ones(4000, 5, dtype=torch.bool)
    for tube, expected in ((False, 1 - 0.8**4), (True, 0.0)):
        hidden = FeatureMask(0.8, 50, tube=tube).sample(valid, generator())
        elsewhere = (~hidden).any(1, keepdim=True).expand_as(hidden)
        assert float(elsewhere[hidden].float().mean()) == pytest.approx(expected, abs=0.02)


def test_a_tube_mask_requires_two_features():
    FeatureMask(0.8, 1).require(5)
    with pytest.raises(ValueError, match=r"feature_dim=1 .*single entry.*tube=True"):
        FeatureMask(0.8, 1, tube=True).require(5)


def test_a_time_mask_masks_every_step_equally_often():
    hidden = TimeMask(0.7).sample(torch.ones(20_000, 5, dtype=torch.bool), generator())
    # 80 % each; four standard errors with 20,000 samples are 1.1 %.
    assert hidden.float().mean(0).tolist() == pytest.approx([0.8] * 5, abs=0.012)


def test_a_span_mask_masks_one_run_at_every_position():
    hidden = SpanMask(0.4).sample(torch.ones(500, 5, dtype=torch.bool), generator())
    found = {tuple(row.nonzero().flatten().tolist()) for row in hidden}
    assert found == {(0, 1), (1, 2), (2, 3), (3, 4)}


def test_a_last_mask_masks_the_newest_step():
    valid = torch.tensor([[True] * 4, [False, True, True, True], [False, False, False, True]])
    hidden = LastMask().sample(valid, generator())
    assert hidden.tolist() == [[False] * 3 + [True], [False] * 3 + [True], [False] * 4]


def test_a_next_step_mask_masks_the_future_and_scores_its_first_step():
    mask = NextStepMask()
    hidden = mask.sample(torch.ones(500, 4, dtype=torch.bool), generator())
    rows = {tuple(row.tolist()) for row in hidden}
    assert rows == {
        (False, True, True, True),
        (False, False, True, True),
        (False, False, False, True),
    }
    targets = mask.targets(hidden)
    assert (targets.sum(1) == 1).all()
    assert torch.equal(targets.int().argmax(1), hidden.int().argmax(1))


def test_an_all_mask_masks_all_valid_steps():
    valid = torch.tensor([[False, True, True]])
    assert torch.equal(AllMask().sample(valid, generator()), valid)
    AllMask().require(1)


def test_the_same_generator_gives_the_same_mask():
    valid = torch.ones(32, 6, dtype=torch.bool)
    for mask in (TimeMask(), SpanMask(), NextStepMask(), FeatureMask(0.5, 3)):
        first, again = mask.sample(valid, generator(3)), mask.sample(valid, generator(3))
        assert torch.equal(first, again)
        assert not torch.equal(first, mask.sample(valid, generator(4)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeMask(1.0), r"ratio=1.0 is outside \[0, 1\)"),
        (lambda: TimeMask(-0.1), r"ratio=-0.1 is outside"),
        (lambda: TimeMask(float("nan")), "outside"),
        (lambda: SpanMask(1.5), "outside"),
        (lambda: FeatureMask(1.0), "outside"),
        (lambda: TimeMask(0.5).require(1), "length=1 leaves TimeMask nothing"),
        (lambda: LastMask().require(1), "Use length >= 2, or AllMask"),
        (lambda: FeatureMask(0.5, 1).require(1), "single entry"),
    ],
)
def test_impossible_settings_raise_with_the_remedy(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_ties_do_not_change_the_number_of_masked_entries(monkeypatch):
    """With eight distinct scores for thirty entries, every window has ties at the threshold."""

    def coarse(shape, generator):
        return torch.randint(8, shape, generator=generator) / 8

    monkeypatch.setattr(masking, "uniform", coarse)
    valid = torch.ones(200, 5, dtype=torch.bool)
    valid[:50, :2] = False
    hidden = FeatureMask(0.8, 6).sample(valid, torch.Generator().manual_seed(0))
    assert hidden[50:].sum((1, 2)).tolist() == [24] * 150
    assert hidden[:50].sum((1, 2)).tolist() == [15] * 50  # 18 entries, of which 3 stay visible
    assert not hidden[:50, :2].any()
