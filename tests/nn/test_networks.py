"""MLP, convolutional encoders and random shifts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.parts import actions, reader
from tests.plain_drqv2 import PlainDrQv2
from torch import nn

from mimex.agents.drqv2 import DrQv2, DrQv2Settings
from mimex.nn.networks import ConvEncoder, PixelEncoder, draw_shifts, mlp, shift


def test_widths_activations_and_gains():
    network = mlp((4, 8, 8, 2), activation=nn.SELU, gain=math.sqrt(2), last_gain=0.01)
    assert [type(m) for m in network] == [nn.Linear, nn.SELU, nn.Linear, nn.SELU, nn.Linear]
    middle, last = network[2].weight, network[4].weight
    assert torch.allclose(middle @ middle.t(), 2 * torch.eye(8), atol=1e-5)
    assert torch.allclose(last @ last.t(), 1e-4 * torch.eye(2), atol=1e-7)
    assert (network[0].bias == 0).all()


@pytest.mark.parametrize("size", [36, 64, 84, 97])
@pytest.mark.parametrize("batch", [(), (5,), (2, 3), (0,)], ids=str)
def test_images_of_any_size_and_batch_become_features(size, batch):
    encoder = ConvEncoder(size, features=7)
    images = torch.randint(0, 256, (*batch, 3, size, size), dtype=torch.uint8)
    assert encoder(images).shape == (*batch, 7)


def test_features_have_the_same_scale_for_any_image():
    encoder = ConvEncoder(64)
    pattern = torch.randint(0, 2, (8, 3, 64, 64), dtype=torch.uint8)
    dim, bright = encoder(pattern * 40), encoder(pattern * 255)
    for encoded in (dim, bright):
        assert torch.allclose(encoded.mean(-1), torch.zeros(8), atol=1e-5)
        assert torch.allclose(encoded.std(-1, correction=0), torch.ones(8), atol=1e-3)


def test_images_of_a_batch_are_encoded_independently():
    encoder = ConvEncoder(40)
    images = torch.randint(0, 256, (4, 3, 40, 40), dtype=torch.uint8)
    assert torch.allclose(encoder(images)[2], encoder(images[2]), atol=1e-5)


def test_training_predicts_the_position_of_a_dot():
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
def test_images_of_a_wrong_shape_or_dtype_raise(images, words):
    with pytest.raises(ValueError, match=words):
        ConvEncoder(64)(images)


def test_sizes_too_small_for_the_filters_raise():
    with pytest.raises(ValueError, match=r"image_size=35 .* at least 36"):
        ConvEncoder(35)
    with pytest.raises(ValueError, match=r"channels=\(8, 8\); expected three"):
        ConvEncoder(64, channels=(8, 8))


def images_of(count=6, size=84, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 9, size, size), dtype=torch.uint8, generator=generator)


def test_the_published_encoder_has_39200_features_at_84_pixels():
    encoder = PixelEncoder(9, 84)
    assert encoder.features == 39_200
    assert encoder(images_of(2)).shape == (2, 39_200)
    shapes = [tuple(p.shape) for p in encoder.parameters()]
    assert shapes == [(32, 9, 3, 3), (32,)] + 3 * [(32, 32, 3, 3), (32,)]


def test_weights_start_orthogonal_with_the_gain_of_relu_and_biases_at_zero():
    encoder = PixelEncoder(9, 84)
    for layer in encoder.convolutions:
        if isinstance(layer, torch.nn.Conv2d):
            rows = layer.weight.flatten(1)
            torch.testing.assert_close(rows @ rows.T, 2 * torch.eye(32), atol=1e-5, rtol=0)
            assert not layer.bias.any()


def test_bytes_are_scaled_around_zero_without_changing_the_input():
    encoder = PixelEncoder(9, 84)
    images = images_of(3)
    before = images.clone()
    expected = encoder.convolutions(images / 255 - 0.5).permute(0, 2, 3, 1).flatten(1)
    torch.testing.assert_close(encoder(images), expected)
    assert torch.equal(images, before)


def test_a_shift_equals_the_published_one_to_the_pixel():
    plain = PlainDrQv2(DrQv2(reader(9, 84, 84), actions(1), DrQv2Settings(hidden=8, trunk=4)))
    images = images_of(81)
    every = torch.cartesian_prod(torch.arange(-4, 5), torch.arange(-4, 5))
    moved = shift(images, every)
    # Interpolation at whole pixels leaves rounding errors only.
    torch.testing.assert_close(moved.float(), plain.shift(images, every), atol=0.05, rtol=0)


def test_a_shift_moves_down_and_right_and_repeats_the_edge():
    image = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4)
    moved = shift(image, torch.tensor([[1, -2]]))[0, 0]
    expected = [[2, 3, 3, 3], [2, 3, 3, 3], [6, 7, 7, 7], [10, 11, 11, 11]]
    assert moved.tolist() == expected


@pytest.mark.usefixtures("cuda")
def test_shifts_on_the_gpu_equal_those_on_the_cpu():
    images = images_of(81)
    every = torch.cartesian_prod(torch.arange(-4, 5), torch.arange(-4, 5))
    moved = shift(images.to("cuda"), every.to("cuda"))
    assert moved.device.type == "cuda"
    assert torch.equal(moved.cpu(), shift(images, every))


def test_shifts_are_uniform_integers():
    shifts = draw_shifts(20_000, 4, torch.Generator().manual_seed(0))
    for axis in range(2):
        counts = np.unique(shifts[:, axis], return_counts=True)
        assert counts[0].tolist() == list(range(-4, 5))
        assert (counts[1] / 20_000).tolist() == pytest.approx([1 / 9] * 9, abs=0.01)


def test_images_too_small_for_the_convolutions_raise():
    with pytest.raises(ValueError, match=r"image_size=14 pixels"):
        PixelEncoder(9, 14)
