import pytest
import torch
from benchmarks.plain import PlainAutoencoder

import mimex
from mimex.bonus.masks import FeatureMask, NextStepMask, TimeMask
from mimex.bonus.mimex import (
    FeatureMaskedDecoder,
    TimeMaskedAutoencoder,
    squared_error,
)
from mimex.bonus.size import COMPACT, LARGER, PAPER, RELEASED, AutoencoderSize
from mimex.types import Window

B, L, D = 12, 5, 9


@pytest.fixture
def features():
    return torch.randn(B, L, D, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return TimeMaskedAutoencoder(D, L, RELEASED)


def loss_of(model, x, masked, valid=None, actions=None, targets=None):
    """The loss of each window, as MIMEx computes it."""
    valid = torch.ones(x.shape[:2], dtype=torch.bool) if valid is None else valid
    targets = masked if targets is None else targets
    prediction = model(x, masked, targets, valid, actions)
    scored = targets.view(*targets.shape[:2], -1).expand_as(x) & valid.unsqueeze(2)
    return squared_error(prediction, x, scored)


def time_mask(batch=B, length=L, ratio=0.7, seed=0):
    valid = torch.ones(batch, length, dtype=torch.bool)
    return TimeMask(ratio).sample(valid, torch.Generator().manual_seed(seed))


def published(length=L):
    """A plain model, its weights with the published names, and its loss for a mask."""
    torch.manual_seed(2)
    plain = PlainAutoencoder(D, length)
    for parameter in plain.parameters():  # no zero biases, no unit norms: every weight matters
        torch.nn.init.normal_(parameter, std=0.2)

    def loss(x, hidden):
        kept = length - int(hidden[0].sum())
        return plain(x, hidden.float() + torch.rand(hidden.shape) * 0.5, kept)

    return plain.state_dict(), loss


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.7])
def test_published_weights_give_the_published_loss(features, model, ratio):
    weights, loss = published()
    model.load_state_dict(weights)
    hidden = time_mask(ratio=ratio)
    expected = loss(features, hidden)
    assert torch.allclose(loss_of(model, features, hidden), expected, rtol=0, atol=1e-5)


def test_gradients_equal_those_of_the_plain_model(features, model):
    weights, _ = published()
    model.load_state_dict(weights)
    hidden = time_mask()
    torch.manual_seed(2)
    plain = PlainAutoencoder(D, L)
    plain.load_state_dict(weights)
    noise = hidden.float() + 0.5 * torch.rand(hidden.shape)
    plain(features, noise, 1).mean().backward()
    loss_of(model, features, hidden).mean().backward()
    ours = dict(model.named_parameters())
    for name, parameter in plain.named_parameters():
        assert torch.allclose(ours[name].grad, parameter.grad, atol=1e-5), name


def test_visible_steps_are_not_scored_and_masked_steps_are_not_inputs(features, model):
    """A masked step affects the error only as the target, never the prediction."""
    hidden = torch.zeros(B, L, dtype=torch.bool)
    hidden[:, 2] = True
    error = loss_of(model, features, hidden)
    moved = features.clone()
    moved[:, 2] += 1.0
    # e(x + 1) - e(x) = mean(1 - 2 (p - x)) is linear in the unseen prediction p:
    twice = features.clone()
    twice[:, 2] += 2.0
    first = loss_of(model, moved, hidden) - error
    second = loss_of(model, twice, hidden) - loss_of(model, moved, hidden)
    assert torch.allclose(second - first, torch.full((B,), 2.0), atol=1e-4)
    changed = features.clone()
    changed[:, 3] += 1.0  # visible: the prediction of step 2 changes
    assert not torch.allclose(loss_of(model, changed, hidden), error, atol=1e-5)


def test_padding_is_neither_an_input_nor_scored(features, model):
    valid = torch.ones(B, L, dtype=torch.bool)
    valid[:, :2] = False
    hidden = torch.zeros(B, L, dtype=torch.bool)
    hidden[:, 3] = True
    error = loss_of(model, features, hidden, valid)
    garbage = features.clone()
    garbage[:, :2] = 1e6
    assert torch.allclose(loss_of(model, garbage, hidden, valid), error, atol=1e-6)
    everything = torch.ones_like(hidden)  # masking padding, too, scores only valid steps
    only_valid = everything & valid
    assert torch.allclose(
        loss_of(model, features, everything, valid), loss_of(model, features, only_valid, valid)
    )


def test_windows_of_different_lengths_are_scored_independently(features, model):
    valid = torch.tensor([[step >= row % L for step in range(L)] for row in range(B)])
    hidden = TimeMask(0.5).sample(valid, torch.Generator().manual_seed(3))
    together = loss_of(model, features, hidden, valid)
    for row in range(B):
        one = slice(row, row + 1)
        alone = loss_of(model, features[one], hidden[one], valid[one])
        assert torch.allclose(together[one], alone, atol=1e-5)
    nothing_hidden = ~hidden.any(1)
    assert nothing_hidden.any()
    assert (together[nothing_hidden] == 0).all()


def test_several_masks_at_once_equal_one_at_a_time(features):
    bonus = mimex.MIMEx(D, L, masks=4, mask_type="time")
    masks = torch.stack([time_mask(seed=seed) for seed in (0, 1, 2, 0)])  # one mask twice
    valid = torch.ones(B, L, dtype=torch.bool)
    together = bonus.score(features, None, valid, masks)[0]
    one_by_one = torch.stack([loss_of(bonus.network, features, mask) for mask in masks])
    assert torch.allclose(together, one_by_one.mean(0), atol=1e-6)


@pytest.mark.parametrize("mask_type", ["time", "feature", "tube"])
@pytest.mark.parametrize("settings", [{}, {"size": RELEASED}, {"size": LARGER, "action_dim": 2}])
def test_every_parameter_gets_a_gradient(mask_type, settings):
    bonus = mimex.MIMEx(D, L, mask_type=mask_type, mask_ratio=0.5, **settings)
    bonus.learn(Window(torch.randn(B, L, D), actions=torch.randn(B, L, 2)))
    without = [
        name
        for name, parameter in bonus.network.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    ]
    assert without == []


def test_feature_masks_mask_single_features(features):
    torch.manual_seed(0)
    model = FeatureMaskedDecoder(D, L, PAPER)
    valid = torch.ones(B, L, dtype=torch.bool)
    hidden = FeatureMask(0.9, D).sample(valid, torch.Generator().manual_seed(0))
    error = loss_of(model, features, hidden)
    unseen = torch.where(hidden, features + 5.0, features)
    step = loss_of(model, unseen, hidden) - error
    again = loss_of(model, torch.where(hidden, features + 10.0, features), hidden) - (error + step)
    # Masked features enter as targets only: the second difference of (p - x)^2 is 2 * 5^2.
    assert torch.allclose(again - step, torch.full((B,), 50.0), atol=1e-2)
    zeros = torch.zeros_like(hidden)
    zeros[:, 2, 4] = True
    only = (model_prediction(model, features, zeros) - features)[:, 2, 4].square()
    assert torch.allclose(loss_of(model, features, zeros), only, atol=1e-5)


def model_prediction(model, features, masked):
    """The decoder-only model, written out."""
    x = model.embed(features.masked_fill(masked, 0.0)) + model.positions
    for block in model.blocks:
        x = block(x)
    return model.pred(model.norm(x))


def test_only_the_scored_part_of_the_mask_enters_the_loss(features, model):
    mask = NextStepMask()
    hidden = mask.sample(torch.ones(B, L, dtype=torch.bool), torch.Generator().manual_seed(0))
    targets = mask.targets(hidden)
    error = loss_of(model, features, hidden, targets=targets)
    future = hidden & ~targets
    changed = torch.where(future.unsqueeze(2), features + 3.0, features)
    assert torch.allclose(loss_of(model, changed, hidden, targets=targets), error, atol=1e-6)


def test_network_sizes_match_the_settings():
    larger = TimeMaskedAutoencoder(D, L, LARGER)
    assert (len(larger.decoder_blocks), larger.decoder_embed.out_features) == (2, 128)
    assert larger.decoder_blocks[0].attn.heads == 4
    assert TimeMaskedAutoencoder(D, L, PAPER).cls_token is None
    decoder = FeatureMaskedDecoder(D, L, LARGER)
    assert (len(decoder.blocks), decoder.embed.out_features) == (2, 128)


def test_invalid_sizes_raise():
    with pytest.raises(ValueError, match="width=130 is not a multiple of heads=4"):
        AutoencoderSize(width=130)
    with pytest.raises(ValueError, match="decoder_width=64 is not a multiple of decoder_heads=3"):
        AutoencoderSize(decoder_heads=3)
    with pytest.raises(ValueError, match="depth=-1"):
        AutoencoderSize(depth=-1)


@pytest.mark.parametrize("mask_type", ["time", "feature"])
def test_a_window_of_padding_only_has_finite_predictions(mask_type):
    bonus = mimex.MIMEx(D, L, mask_type=mask_type, size=COMPACT)
    valid = torch.arange(L) >= torch.tensor([[0], [L]])  # a full window and an empty one
    rewards = bonus.reward(Window(torch.randn(2, L, D), valid))
    assert rewards[0] > 0
    assert rewards[1] == 0


def test_published_padding_scores_zeros_like_data():
    """Padding is not a target by default; the published setting scores it."""
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
    """A point that moves exactly by its random action; windows of four steps."""
    g = torch.Generator().manual_seed(seed)
    actions = torch.randn(steps, 4, 2, generator=g)
    positions = actions.cumsum(1) * 0.5
    return Window(positions - positions[:, :1], actions=actions)


def test_conditioning_on_actions_removes_the_reward_of_action_noise():
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


def test_the_action_of_a_masked_step_is_an_input():
    bonus = mimex.MIMEx(3, 4, action_dim=2, mask_type="time")
    g = torch.Generator().manual_seed(0)
    features, actions = torch.randn(8, 4, 3, generator=g), torch.randn(8, 4, 2, generator=g)
    hidden = torch.zeros(8, 4, dtype=torch.bool)
    hidden[:, 2] = True
    expected = loss_of(bonus.network, features, hidden, actions=actions)
    for position in range(4):  # the masked step's own action matters, too
        moved = actions.clone()
        moved[:, position] += 1.0
        changed = loss_of(bonus.network, features, hidden, actions=moved)
        assert not torch.allclose(expected, changed, atol=1e-5), position


def test_actions_are_required_with_action_dim():
    bonus = mimex.MIMEx(3, 4, action_dim=2)
    with pytest.raises(ValueError, match="uses actions"):
        bonus.reward(Window(torch.randn(8, 4, 3)))
    with pytest.raises(ValueError, match=r"actions has shape \(8, 4, 3\)"):
        bonus.reward(Window(torch.randn(8, 4, 3), actions=torch.randn(8, 4, 3)))


@pytest.mark.parametrize(("length", "ratio"), [(2, 0.5), (3, 2 / 3), (4, 0.75), (6, 5 / 6)])
def test_the_effective_ratio_of_every_studied_length(length, ratio):
    """In the released code windows of two steps crashed, and the ratio differed by length."""
    bonus = mimex.MIMEx(3, length, mask_type="time")
    window = Window(torch.randn(8, length, 3, generator=torch.Generator().manual_seed(0)))
    rewards, _ = bonus.learn(window)
    assert (rewards > 0).all()
    assert bonus.effective_ratio == pytest.approx(ratio)


def test_a_tube_mask_is_chosen_by_its_type():
    bonus = mimex.MIMEx(10, mask_type="tube", mask_ratio=0.7)
    assert bonus.mask == mimex.masks.FeatureMask(0.7, 10, tube=True)
    assert bonus.effective_ratio == pytest.approx(0.7)
    rewards, _ = bonus.learn(Window(torch.randn(8, 5, 10)))
    assert (rewards > 0).all()


@pytest.mark.parametrize("mask_type", ["time", "feature", "tube"])
def test_reconstructions_use_the_masks_of_the_reward_and_change_no_state(mask_type):
    bonus = mimex.MIMEx(3, length=4, mask_type=mask_type, seed=1)
    window = mimex.Window(torch.randn(6, 4, 3))
    hidden, filled = bonus.reconstruct(window)
    again, _ = bonus.reconstruct(window)
    assert torch.equal(hidden, again)
    squares = (filled - window.features).square()  # zero where nothing is hidden
    masked_entries = hidden.view(6, 4, -1).expand(6, 4, 3)
    torch.testing.assert_close(
        squares.sum((1, 2)) / masked_entries.sum((1, 2)), bonus.reward(window)
    )
