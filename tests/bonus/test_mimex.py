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
    bonus = mimex.MIMEx(3, length)
    window = Window(torch.randn(8, length, 3, generator=torch.Generator().manual_seed(0)))
    paid, _ = bonus.learn(window)
    assert (paid > 0).all()
    assert bonus.effective_ratio == pytest.approx(ratio)


def test_a_reconstruction_is_of_the_mask_that_is_paid_for_and_changes_nothing():
    bonus = mimex.MIMEx(3, length=4, seed=1)
    window = mimex.Window(torch.randn(6, 4, 3))
    hidden, filled = bonus.reconstruct(window)
    again, _ = bonus.reconstruct(window)
    assert torch.equal(hidden, again)
    squares = (filled - window.features).square().mean(2)  # zero where nothing is hidden
    torch.testing.assert_close(squares.sum(1) / hidden.sum(1), bonus.reward(window))


def test_published_weights_with_a_class_token_are_trained_from_there():
    source = mimex.MIMEx(3, length=4, size=mimex.AutoencoderSize(class_token=True), seed=5)
    bonus = mimex.MIMEx(3, length=4, size=mimex.PAPER, seed=1)
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


def walks(steps, offset, seed):
    """Windows of five steps of smooth walks around a place."""
    g = torch.Generator().manual_seed(seed)
    starts = offset + torch.randn(steps, 1, 4, generator=g)
    return Window(starts + 0.02 * torch.randn(steps, 5, 4, generator=g).cumsum(1))


def test_random_features_are_of_the_hidden_steps_and_by_a_frozen_network():
    bonus = mimex.MIMEx(3, 2, predicts="random", mask=mimex.masks.LastMask())
    window = walks(8, 0.0, 0)
    window = Window(window.features[:, :2, :3])
    frozen = {name: p.clone() for name, p in bonus.random.state_dict().items()}
    hidden = torch.tensor([False, True]).expand(8, 2)
    model = bonus.autoencoder
    decoded, _, _ = model.decoded(window.features, torch.arange(8), hidden, None, None, hidden)
    wanted = bonus.random(window.features[:, 1])
    by_hand = (model.decoder_pred(decoded[:, 0]) - wanted).square().mean(1)
    assert torch.allclose(bonus.reward(window), by_hand.detach(), atol=1e-6)
    bonus.learn(window)
    assert not any(name.startswith("random") for name in bonus.trainable)
    assert all(torch.equal(p, frozen[name]) for name, p in bonus.random.state_dict().items())


def test_random_features_survive_saving():
    bonus, other = mimex.MIMEx(4, predicts="random"), mimex.MIMEx(4, predicts="random", seed=1)
    bonus.learn(walks(16, 0.0, 0))
    other.load_state_dict(bonus.state_dict())
    assert torch.equal(other.reward(walks(16, 0.0, 1)), bonus.reward(walks(16, 0.0, 1)))
    with pytest.raises(ValueError, match="does not fit"):
        mimex.MIMEx(4).load_state_dict(bonus.state_dict())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"predicts": "pixels"}, "use 'features' or 'random'"),
        ({"predicts": "random", "mask_type": "feature"}, "whole steps"),
        ({"predicts": "random", "mask": mimex.masks.FeatureMask(0.5)}, "whole steps"),
    ],
)
def test_what_cannot_be_predicted_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        mimex.MIMEx(4, **settings)


def test_random_features_are_nothing_to_fill_in():
    with pytest.raises(ValueError, match="none to reconstruct"):
        mimex.MIMEx(4, predicts="random").reconstruct(walks(2, 0.0, 0))
