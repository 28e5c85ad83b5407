import pytest
import torch

import mimex
from mimex.types import Window


def test_published_padding_scores_zeros_like_data():
    """Fault 8: by default padding is no target; the paper-faithful setting asks for it."""
    valid = torch.tensor([[False, False, True, True, True]])
    features = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0))
    features = features * valid.unsqueeze(2)
    published = mimex.MIMEx(4, padding="zeros")
    assert torch.equal(
        published.reward(Window(features, valid)), published.reward(Window(features))
    )
    ours = mimex.MIMEx(4)
    assert not torch.allclose(ours.reward(Window(features, valid)), ours.reward(Window(features)))


def deterministic_system(steps, seed):
    """A point that goes exactly where its random action sends it; windows of four steps."""
    g = torch.Generator().manual_seed(seed)
    actions = torch.randn(steps, 4, 2, generator=g)
    positions = actions.cumsum(1) * 0.5
    return Window(positions - positions[:, :1], actions=actions)


def test_actions_explain_a_deterministic_system_and_noise_is_no_longer_paid():
    """With the actions visible the bonus falls to near zero; without them it cannot."""
    size = mimex.AutoencoderSize(width=32, depth=1, heads=2, decoder_width=32)
    with_actions = mimex.MIMEx(2, 4, lr=3e-3, size=size, action_dim=2)
    without = mimex.MIMEx(2, 4, lr=3e-3, size=size)
    for step in range(300):
        window = deterministic_system(128, step)
        with_actions.learn(window)
        without.learn(window)
    fresh = deterministic_system(2000, 10**6)
    explained, unexplained = (float(b.reward(fresh).mean()) for b in (with_actions, without))
    assert explained < 0.02  # of a mean square of the features of 0.38
    assert unexplained > 0.2


def test_an_action_is_seen_where_its_step_is_hidden():
    bonus = mimex.MIMEx(3, 4, action_dim=2)
    g = torch.Generator().manual_seed(0)
    features, actions = torch.randn(8, 4, 3, generator=g), torch.randn(8, 4, 2, generator=g)
    hidden = torch.zeros(8, 4, dtype=torch.bool)
    hidden[:, 2] = True
    error = bonus.autoencoder.error(features, hidden, actions=actions)
    for place in range(4):  # the hidden step's own action matters as the others' do
        moved = actions.clone()
        moved[:, place] += 1.0
        changed = bonus.autoencoder.error(features, hidden, actions=moved)
        assert not torch.allclose(error, changed, atol=1e-5), place


def test_actions_are_required_where_they_condition():
    bonus = mimex.MIMEx(3, 4, action_dim=2)
    with pytest.raises(ValueError, match="uses actions"):
        bonus.reward(Window(torch.randn(8, 4, 3)))
    with pytest.raises(ValueError, match=r"actions has shape \(8, 4, 3\)"):
        bonus.reward(Window(torch.randn(8, 4, 3), actions=torch.randn(8, 4, 3)))


@pytest.mark.parametrize(("length", "ratio"), [(2, 0.5), (3, 2 / 3), (4, 0.75), (6, 5 / 6)])
def test_every_studied_length_works_and_says_what_it_hides(length, ratio):
    """Fault 6: windows of two steps crashed; fault 5: the ratio silently differed by length."""
    bonus = mimex.MIMEx(3, length, mask_type="time")
    window = Window(torch.randn(8, length, 3, generator=torch.Generator().manual_seed(0)))
    paid, _ = bonus.learn(window)
    assert (paid > 0).all()
    assert bonus.effective_ratio == pytest.approx(ratio)


def test_a_tube_mask_is_chosen_by_its_type():
    bonus = mimex.MIMEx(10, mask_type="tube", mask_ratio=0.7)
    assert bonus.mask == mimex.masks.FeatureMask(0.7, 10, tube=True)
    assert bonus.effective_ratio == pytest.approx(0.7)
    rewards, _ = bonus.learn(Window(torch.randn(8, 5, 10)))
    assert (rewards > 0).all()


@pytest.mark.parametrize("mask_type", ["time", "feature", "tube"])
def test_a_reconstruction_is_of_the_mask_that_is_paid_for_and_changes_nothing(mask_type):
    bonus = mimex.MIMEx(3, length=4, mask_type=mask_type, seed=1)
    window = mimex.Window(torch.randn(6, 4, 3))
    hidden, filled = bonus.reconstruct(window)
    again, _ = bonus.reconstruct(window)
    assert torch.equal(hidden, again)
    squares = (filled - window.features).square()  # zero where nothing is hidden
    asked = hidden.view(6, 4, -1).expand(6, 4, 3)
    torch.testing.assert_close(squares.sum((1, 2)) / asked.sum((1, 2)), bonus.reward(window))


def test_published_weights_with_a_class_token_are_trained_from_there():
    source = mimex.MIMEx(3, length=4, size=mimex.AutoencoderSize(class_token=True), seed=5)
    bonus = mimex.MIMEx(3, length=4, mask_type="time", size=mimex.PAPER, seed=1)
    assert bonus.autoencoder.cls_token is None  # beyond the paper's text, so only on demand
    bonus.load_published(source.autoencoder.state_dict())
    before = bonus.autoencoder.cls_token.detach().clone()
    assert torch.equal(before, source.autoencoder.cls_token)
    bonus.learn(Window(torch.randn(8, 4, 3)))
    assert not torch.equal(bonus.autoencoder.cls_token, before)


def test_published_weights_of_another_size_are_refused_with_the_remedy():
    source = mimex.MIMEx(3, length=4, size=mimex.PAPER)
    with pytest.raises(ValueError, match=r"the paper's is mimex\.PAPER"):
        mimex.MIMEx(3, length=4).load_published(source.autoencoder.state_dict())


def test_published_weights_need_a_known_width():
    with pytest.raises(ValueError, match="feature_dim"):
        mimex.MIMEx(length=4).load_published({})
