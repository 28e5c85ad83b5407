import pytest
import torch

from mimex import RND, MIMEx, Window
from mimex.contracts import SHOWN_WINDOWS as WINDOWS
from mimex.train.novelty import MAX_FEATURES, reconstructions


def windows(count=9, numbers=3):
    features = torch.randn(count, 5, numbers, generator=torch.Generator().manual_seed(0))
    valid = torch.ones(count, 5, dtype=torch.bool)
    valid[0, 0] = False
    return Window(features, valid)


@pytest.mark.parametrize("normalize", [False, True])
def test_reconstructions_show_full_windows_masks_and_predictions(normalize):
    bonus, shown = MIMEx(3, mask_type="time", seed=1, normalize=normalize), windows()
    shown.features.mul_(3)
    bonus.learn(shown)
    [film] = reconstructions(bonus, {"first": shown, "newest": None})
    assert film["kind"] == "first"
    size = shown.features[shown.valid].std(dim=0, correction=0) if normalize else torch.ones(3)
    middle = shown.features[shown.valid].mean(dim=0) if normalize else torch.zeros(3)
    expected = (shown.features[1 : 1 + WINDOWS] - middle) / size
    torch.testing.assert_close(film["features"], expected)
    assert film["hidden"].shape == (WINDOWS, 5)
    assert (film["hidden"].sum(1) == 4).all()  # 70 % of five
    # The error of what is shown as hidden is the bonus itself.
    errors = (film["features"] - film["prediction"]).square().mean(2)
    paid = (errors * film["hidden"]).sum(1) / film["hidden"].sum(1)
    torch.testing.assert_close(film["reward"], paid)


def test_reconstructing_changes_nothing():
    filmed, other = MIMEx(3, seed=1), MIMEx(3, seed=1)
    reconstructions(filmed, {"first": windows()})
    torch.testing.assert_close(filmed.learn(windows())[0], other.learn(windows())[0])


def test_of_many_features_those_with_most_variance_are_kept():
    shown = windows(numbers=MAX_FEATURES + 10)
    shown.features[..., 3:13] *= 1e-3
    [film] = reconstructions(MIMEx(MAX_FEATURES + 10, seed=1), {"first": shown})
    assert film["numbers"].tolist() == [0, 1, 2, *range(13, MAX_FEATURES + 10)]
    torch.testing.assert_close(
        film["features"], shown.features[1 : 1 + WINDOWS, :, film["numbers"]]
    )


def test_a_bonus_without_reconstruction_has_none():
    assert reconstructions(RND(3, seed=1), {"first": windows()}) == []


@pytest.mark.parametrize("normalize", [False, True])
def test_reconstructions_of_a_bonus_with_an_encoder_show_the_encoded_features(normalize):
    shown = windows(numbers=30)
    bonus = MIMEx(encoder=lambda x: x[:, :4] * 2, mask_type="time", seed=1, normalize=normalize)
    bonus.learn(shown)
    [film] = reconstructions(bonus, {"first": shown})
    assert film["features"].shape == film["prediction"].shape == (WINDOWS, 5, 4)
    some = Window(shown.features[1 : 1 + WINDOWS])
    torch.testing.assert_close(film["features"], bonus.inputs(some))
    errors = (film["features"] - film["prediction"]).square().mean(2)
    rewards = (errors * film["hidden"]).sum(1) / film["hidden"].sum(1)
    torch.testing.assert_close(film["reward"], rewards)
