"""The convolutional encoder takes bytes of any size that is used, and learns where things are."""

from __future__ import annotations

import pytest
import torch

from mimex.nn.conv import ConvEncoder


@pytest.mark.parametrize("size", [36, 64, 84, 97])
@pytest.mark.parametrize("batch", [(), (5,), (2, 3), (0,)], ids=str)
def test_images_of_any_size_and_batch_become_features(size, batch):
    encoder = ConvEncoder(size, features=7)
    images = torch.randint(0, 256, (*batch, 3, size, size), dtype=torch.uint8)
    assert encoder(images).shape == (*batch, 7)


def test_features_are_of_one_scale_whatever_the_image():
    encoder = ConvEncoder(64)
    pattern = torch.randint(0, 2, (8, 3, 64, 64), dtype=torch.uint8)
    dim, bright = encoder(pattern * 40), encoder(pattern * 255)
    for encoded in (dim, bright):
        assert torch.allclose(encoded.mean(-1), torch.zeros(8), atol=1e-5)
        assert torch.allclose(encoded.std(-1, correction=0), torch.ones(8), atol=1e-3)


def test_the_images_of_a_batch_do_not_see_each_other():
    encoder = ConvEncoder(40)
    images = torch.randint(0, 256, (4, 3, 40, 40), dtype=torch.uint8)
    assert torch.allclose(encoder(images)[2], encoder(images[2]), atol=1e-5)


def test_it_learns_where_a_dot_is():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    encoder = ConvEncoder(36, features=32)
    readout = torch.nn.Linear(32, 2)
    optimizer = torch.optim.Adam([*encoder.parameters(), *readout.parameters()], lr=1e-3)
    losses = []
    for _ in range(60):
        place = torch.randint(0, 32, (64, 2), generator=generator)
        images = torch.zeros(64, 3, 36, 36, dtype=torch.uint8)
        for image, (row, column) in zip(images, place.tolist(), strict=True):
            image[:, row : row + 4, column : column + 4] = 255
        loss = (readout(encoder(images)) - place / 16 + 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.2 * sum(losses[:5])


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (torch.zeros(2, 3, 64, 64), r"torch\.float32"),
        (torch.zeros(2, 64, 64, 3, dtype=torch.uint8), r"\(2, 64, 64, 3\).*\(\.\.\., 3, 64, 64\)"),
        (torch.zeros(2, 3, 84, 84, dtype=torch.uint8), r"\(2, 3, 84, 84\)"),
    ],
)
def test_what_is_no_such_image_is_refused(images, words):
    with pytest.raises(ValueError, match=words):
        ConvEncoder(64)(images)


def test_sizes_that_the_filters_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"image_size=35 .* at least 36"):
        ConvEncoder(35)
    with pytest.raises(ValueError, match=r"channels=\(8, 8\); expected three"):
        ConvEncoder(64, channels=(8, 8))
