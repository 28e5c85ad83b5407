import pytest
import torch
from benchmarks.plain import PlainAutoencoder

from mimex.bonus.autoencoder import MaskedSequenceAutoencoder
from mimex.bonus.masks import FeatureMask, NextStepMask, TimeMask
from mimex.bonus.size import LARGER, AutoencoderSize

B, L, D = 12, 5, 9


@pytest.fixture
def features():
    return torch.randn(B, L, D, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return MaskedSequenceAutoencoder(D, L)


def time_mask(batch=B, length=L, ratio=0.7, seed=0):
    valid = torch.ones(batch, length, dtype=torch.bool)
    return TimeMask(ratio).sample(valid, torch.Generator().manual_seed(seed))


def published(length=L):
    """A plain model, its weights under the published names, and its loss for a mask."""
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
    model.load_published({**weights, "pos_embed.pe": torch.zeros(1)})
    hidden = time_mask(ratio=ratio)
    expected = loss(features, hidden)
    assert torch.allclose(model.error(features, hidden), expected, rtol=0, atol=1e-5)


def test_gradients_equal_those_of_the_plain_model(features, model):
    weights, _ = published()
    model.load_published(weights)
    hidden = time_mask()
    torch.manual_seed(2)
    plain = PlainAutoencoder(D, L)
    plain.load_state_dict(weights)
    noise = hidden.float() + 0.5 * torch.rand(hidden.shape)
    plain(features, noise, 1).mean().backward()
    model.error(features, hidden).mean().backward()
    ours = dict(model.named_parameters())
    for name, parameter in plain.named_parameters():
        assert torch.allclose(ours[name].grad, parameter.grad, atol=1e-5), name


def test_a_published_model_without_class_token_loads(features, model):
    weights, _ = published()
    del weights["cls_token"]
    model.load_published(weights)
    assert model.cls_token is None
    assert model.error(features, time_mask()).isfinite().all()


def test_weights_of_another_size_are_refused(model):
    weights, _ = published()
    weights["encoder_embed.weight"] = torch.zeros(128, D + 1)
    before = model.encoder_embed.weight.clone()
    with pytest.raises(ValueError, match="not the weights of a published model"):
        model.load_published(weights)
    assert torch.equal(model.encoder_embed.weight, before)


def test_visible_steps_are_not_scored_and_hidden_steps_are_not_seen(features, model):
    """Changing a hidden step changes its own error only by the target, never the prediction."""
    hidden = torch.zeros(B, L, dtype=torch.bool)
    hidden[:, 2] = True
    error = model.error(features, hidden)
    moved = features.clone()
    moved[:, 2] += 1.0
    # e(x + 1) - e(x) = mean(1 - 2 (p - x)) is linear in the unseen prediction p:
    twice = features.clone()
    twice[:, 2] += 2.0
    first = model.error(moved, hidden) - error
    second = model.error(twice, hidden) - model.error(moved, hidden)
    assert torch.allclose(second - first, torch.full((B,), 2.0), atol=1e-4)
    changed = features.clone()
    changed[:, 3] += 1.0  # visible: the prediction of step 2 changes
    assert not torch.allclose(model.error(changed, hidden), error, atol=1e-5)


def test_padding_is_neither_seen_nor_scored(features, model):
    valid = torch.ones(B, L, dtype=torch.bool)
    valid[:, :2] = False
    hidden = torch.zeros(B, L, dtype=torch.bool)
    hidden[:, 3] = True
    error = model.error(features, hidden, valid)
    garbage = features.clone()
    garbage[:, :2] = 1e6
    assert torch.allclose(model.error(garbage, hidden, valid), error, atol=1e-6)
    everything = torch.ones_like(hidden)  # hiding padding, too, scores only what is valid
    only_valid = everything & valid
    assert torch.allclose(
        model.error(features, everything, valid), model.error(features, only_valid, valid)
    )


def test_rows_of_different_lengths_score_as_they_would_alone(features, model):
    valid = torch.tensor([[step >= row % L for step in range(L)] for row in range(B)])
    hidden = TimeMask(0.5).sample(valid, torch.Generator().manual_seed(3))
    together = model.error(features, hidden, valid)
    for row in range(B):
        one = slice(row, row + 1)
        alone = model.error(features[one], hidden[one], valid[one])
        assert torch.allclose(together[one], alone, atol=1e-5)
    nothing_hidden = ~hidden.any(1)
    assert nothing_hidden.any()
    assert (together[nothing_hidden] == 0).all()


def test_many_masks_at_once_equal_one_after_the_other(features, model):
    masks = torch.stack([time_mask(seed=seed) for seed in (0, 1, 2, 0)])  # one of them twice
    together = model.errors(features, masks, None, None, masks)
    one_by_one = torch.stack([model.error(features, mask) for mask in masks])
    assert torch.allclose(together, one_by_one, atol=1e-6)


def test_feature_masks_hide_single_numbers(features, model):
    valid = torch.ones(B, L, dtype=torch.bool)
    hidden = FeatureMask(0.9, D).sample(valid, torch.Generator().manual_seed(0))
    error = model.error(features, hidden)
    unseen = torch.where(hidden, features + 5.0, features)
    step = model.error(unseen, hidden) - error
    again = model.error(torch.where(hidden, features + 10.0, features), hidden) - (error + step)
    # Hidden numbers enter as targets only: the second difference of (p - x)^2 is 2 * 5^2.
    assert torch.allclose(again - step, torch.full((B,), 50.0), atol=1e-2)
    zeros = torch.zeros_like(hidden)
    zeros[:, 2, 4] = True
    only = (model_prediction(model, features, zeros) - features)[:, 2, 4].square()
    assert torch.allclose(model.error(features, zeros), only, atol=1e-5)


def model_prediction(model, features, hidden):
    """The decoder-only path, written out."""
    x = model.decoder_embed(model.encoder_embed(features.masked_fill(hidden, 0.0)))
    x = x + model.decoder_positions
    for block in model.decoder_blocks:
        x = block(x)
    return model.decoder_pred(model.decoder_norm(x))


def test_only_the_scored_part_of_what_is_hidden_counts(features, model):
    mask = NextStepMask()
    hidden = mask.sample(torch.ones(B, L, dtype=torch.bool), torch.Generator().manual_seed(0))
    targets = mask.targets(hidden)
    error = model.error(features, hidden, targets=targets)
    future = hidden & ~targets
    changed = torch.where(future.unsqueeze(2), features + 3.0, features)
    assert torch.allclose(model.error(changed, hidden, targets=targets), error, atol=1e-6)


def test_sizes_are_those_of_the_configuration():
    larger = MaskedSequenceAutoencoder(D, L, LARGER)
    assert (len(larger.decoder_blocks), larger.decoder_embed.out_features) == (2, 128)
    assert larger.decoder_blocks[0].attn.heads == 4
    none = MaskedSequenceAutoencoder(D, L, AutoencoderSize(class_token=False))
    assert none.cls_token is None
    assert none.error(torch.randn(3, L, D), time_mask(3)).shape == (3,)


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="feature_dim=0"):
        MaskedSequenceAutoencoder(0, 5)
    with pytest.raises(ValueError, match="width=130 is not a multiple of heads=4"):
        MaskedSequenceAutoencoder(3, 5, AutoencoderSize(width=130))
    with pytest.raises(ValueError, match="decoder_width=64 is not a multiple of decoder_heads=3"):
        AutoencoderSize(decoder_heads=3)
    with pytest.raises(ValueError, match="depth=-1"):
        AutoencoderSize(depth=-1)


@pytest.mark.parametrize("numbers", [False, True])
def test_a_reconstruction_has_the_error_that_error_tells(numbers):
    torch.manual_seed(0)
    model = MaskedSequenceAutoencoder(6, 4)
    features = torch.randn(5, 4, 6)
    valid = torch.ones(5, 4, dtype=torch.bool)
    valid[0, :2] = False
    hidden = torch.zeros(5, 4, dtype=torch.bool)
    hidden[torch.arange(5), torch.tensor([3, 0, 1, 2, 3])] = True
    hidden[3, 3] = True
    if numbers:
        hidden = torch.rand(5, 4, 6) < 0.5
    filled = model.reconstruct(features, hidden, valid)
    scored = hidden & (valid.unsqueeze(2) if numbers else valid)
    untouched = ~(hidden if numbers else scored.unsqueeze(2).expand(5, 4, 6))
    assert torch.equal(filled[untouched], features[untouched])
    wide = scored if numbers else scored.unsqueeze(2).expand(5, 4, 6)
    squares = (filled - features).square() * wide
    expected = squares.sum((1, 2)) / wide.sum((1, 2)).clamp(min=1)
    torch.testing.assert_close(expected, model.error(features, hidden, valid).detach())


def test_masks_of_windows_too_long_for_a_number_of_64_bits_are_told_apart():
    """A key of one bit a step, and the window beside it, overflowed at 64 bits in all."""
    length, batch, masks = 70, 6, 4
    torch.manual_seed(0)
    model = MaskedSequenceAutoencoder(3, length, AutoencoderSize(8, 1, 2, 8, 1, 2))
    features = torch.randn(batch, length, 3)
    hidden = TimeMask(0.7).draw(
        torch.ones(batch, length, dtype=torch.bool), masks, torch.Generator().manual_seed(0)
    )
    hidden[1] = hidden[0]  # drawn twice, which is computed once
    errors = model.errors(features, hidden, None, None, hidden)
    alone = torch.stack([model.error(features, mask) for mask in hidden])
    assert torch.allclose(errors, alone, atol=1e-6)
    assert torch.equal(errors[0], errors[1])
