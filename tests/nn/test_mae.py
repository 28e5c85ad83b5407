"""The masked autoencoder compared with its formulas; its encoder must not see masked patches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mimex.nn.mae import FLAT, MAE, draw_visible, grid_positions, learning_rate
from mimex.nn.vit import IMAGENET_MEAN, IMAGENET_STD, ViT


def network() -> MAE:
    torch.manual_seed(0)
    return MAE(ViT(24, heads=2, width=16, depth=2, patch=8), width=12, depth=1, heads=3)


def images(count: int = 2, size: int = 24) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def patches(of: Tensor, side: int = 3, patch: int = 8) -> Tensor:
    """Patches ``(B, N, 3, 8, 8)``, row by row."""
    cut = [
        of[:, :, patch * row : patch * (row + 1), patch * column : patch * (column + 1)]
        for row in range(side)
        for column in range(side)
    ]
    return torch.stack(cut, 1)


VISIBLE = torch.tensor([[0, 4, 7], [1, 2, 8]])


def test_the_loss_is_over_masked_patches_with_normalized_pixels():
    mae, seen = network(), images()
    with torch.no_grad():
        predicted = mae(seen, VISIBLE)  # (2, 9, 192)
        expected = []
        for image, visible, prediction in zip(seen, VISIBLE, predicted, strict=True):
            color = (image / 255 - torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) / torch.tensor(
                IMAGENET_STD
            ).view(3, 1, 1)
            hidden = [k for k in range(9) if k not in visible.tolist()]
            errors = []
            for k in hidden:
                pixels = patches(color[None])[0, k].flatten()
                target = (pixels - pixels.mean()) / (pixels.var() + FLAT).sqrt()
                errors.append((prediction[k] - target).square().mean())
            expected.append(torch.stack(errors).mean())
        torch.testing.assert_close(mae.loss(seen, VISIBLE), torch.stack(expected))


def test_predictions_depend_on_visible_patches_only():
    mae, seen = network(), images()
    changed = seen.clone()
    cut = patches(changed)
    hidden = torch.ones(2, 9, dtype=torch.bool).scatter(1, VISIBLE, False)
    for image, patch in hidden.nonzero().tolist():
        row, column = divmod(patch, 3)
        changed[image, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = 0
    assert not torch.equal(cut, patches(changed))
    with torch.no_grad():
        assert torch.equal(mae(seen, VISIBLE), mae(changed, VISIBLE))
        changed[0, :, 0, 0] = 255 - changed[0, :, 0, 0]  # of patch 0, which is visible
        assert not torch.equal(mae(seen, VISIBLE)[0], mae(changed, VISIBLE)[0])


def test_the_order_of_visible_patches_does_not_matter():
    mae, seen = network(), images()
    with torch.no_grad():
        torch.testing.assert_close(mae(seen, VISIBLE), mae(seen, VISIBLE.flip(1)))


def test_with_all_patches_visible_the_class_token_equals_the_frozen_encoders():
    """The pretrained encoder equals ``ViT``."""
    mae, seen, found = network(), images(), []
    mae.encoder.norm.register_forward_hook(lambda module, inputs, output: found.append(inputs[0]))
    with torch.no_grad():
        mae(seen, torch.arange(9).expand(2, 9))
        torch.testing.assert_close(found[0][:, 0], mae.encoder(seen))


def test_reconstructions_keep_visible_patches_and_gray_out_masked_ones():
    mae, seen = network(), images()
    masked, filled = mae.reconstruct(seen, VISIBLE)
    gray = torch.tensor(IMAGENET_MEAN).mul(255).round().byte().view(3, 1, 1)
    for image in range(2):
        for patch in range(9):
            original, hidden, shown = (
                patches(x)[image, patch].int() for x in (seen, masked, filled)
            )
            if patch in VISIBLE[image].tolist():
                assert (hidden - original).abs().max() <= 1  # rounding
                assert (shown - original).abs().max() <= 1
            else:
                assert torch.equal(hidden, gray.int().expand(3, 8, 8))
                assert not torch.equal(shown, hidden)


def test_training_reconstructs_repeating_patterns():
    mae = network()
    stripes = (torch.arange(24) // 4 % 2 * 255).byte().expand(4, 3, 24, 24)
    optimizer = torch.optim.Adam([p for p in mae.parameters() if p.requires_grad], 3e-3)
    generator, losses = torch.Generator().manual_seed(0), []
    for _ in range(60):
        loss = mae.loss(stripes, draw_visible(4, 9, 0.75, generator)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]


def test_position_embeddings_are_fixed_and_distinct():
    mae = network()
    assert not mae.encoder.pos_embed.requires_grad
    assert len({tuple(row.tolist()) for row in grid_positions(3, 16)}) == 9
    assert torch.equal(mae.encoder.pos_embed[0, 1:], grid_positions(3, 16))


@pytest.mark.parametrize(("ratio", "count"), [(0.75, 16), (0.5, 32), (0.999, 1), (0.001, 63)])
def test_visible_patches_are_a_random_subset_of_fixed_size(ratio, count):
    visible = draw_visible(50, 64, ratio, torch.Generator().manual_seed(0))
    assert visible.shape == (50, count)
    assert all(len(set(row)) == count for row in visible.tolist())
    assert len({tuple(row) for row in visible.tolist()}) > 1
    again = draw_visible(50, 64, ratio, torch.Generator().manual_seed(0))
    assert torch.equal(visible, again)


def test_the_learning_rate_rises_and_falls_to_zero():
    rates = [learning_rate(2.0, progress) for progress in (0.0, 0.025, 0.05, 0.525, 1.0)]
    assert rates == pytest.approx([0.0, 1.0, 2.0, 1.0, 0.0])


def test_images_of_another_size_or_dtype_raise():
    with pytest.raises(ValueError, match=r"\(2, 3, 32, 32\).*\(..., 3, 24, 24\)"):
        network()(images(size=32), VISIBLE)
    with pytest.raises(ValueError, match=r"float32 .*expected uint8"):
        network().loss(images().float(), VISIBLE)
