import numpy as np
import pytest
import torch
from tests.parts import actions, reader
from tests.plain_drqv2 import PlainDrQv2

from mimex.agents.drqv2 import DrQv2, DrQv2Settings
from mimex.nn.pixels import PixelEncoder, draw_shifts, shift


def pictures(count=6, size=84, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 9, size, size), dtype=torch.uint8, generator=generator)


def test_the_published_encoder_makes_39200_features_of_84_pixels():
    encoder = PixelEncoder(9, 84)
    assert encoder.features == 39_200
    assert encoder(pictures(2)).shape == (2, 39_200)
    shapes = [tuple(p.shape) for p in encoder.parameters()]
    assert shapes == [(32, 9, 3, 3), (32,)] + 3 * [(32, 32, 3, 3), (32,)]


def test_weights_start_orthogonal_with_the_gain_of_relu_and_biases_at_zero():
    encoder = PixelEncoder(9, 84)
    for layer in encoder.convolutions:
        if isinstance(layer, torch.nn.Conv2d):
            rows = layer.weight.flatten(1)
            torch.testing.assert_close(rows @ rows.T, 2 * torch.eye(32), atol=1e-5, rtol=0)
            assert not layer.bias.any()


def test_bytes_are_scaled_to_half_around_zero_and_the_caller_keeps_his():
    encoder = PixelEncoder(9, 84)
    images = pictures(3)
    before = images.clone()
    expected = encoder.convolutions(images / 255 - 0.5).permute(0, 2, 3, 1).flatten(1)
    torch.testing.assert_close(encoder(images), expected)
    assert torch.equal(images, before)


def test_a_shift_is_the_published_one_to_the_pixel():
    plain = PlainDrQv2(DrQv2(reader(9, 84, 84), actions(1), DrQv2Settings(hidden=8, trunk=4)))
    images = pictures(81)
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
def test_a_shift_on_a_gpu_is_that_of_the_cpu():
    images = pictures(81)
    every = torch.cartesian_prod(torch.arange(-4, 5), torch.arange(-4, 5))
    moved = shift(images.to("cuda"), every.to("cuda"))
    assert moved.device.type == "cuda"
    assert torch.equal(moved.cpu(), shift(images, every))


def test_shifts_are_uniform_over_whole_pixels():
    shifts = draw_shifts(20_000, 4, torch.Generator().manual_seed(0))
    for axis in range(2):
        counts = np.unique(shifts[:, axis], return_counts=True)
        assert counts[0].tolist() == list(range(-4, 5))
        assert (counts[1] / 20_000).tolist() == pytest.approx([1 / 9] * 9, abs=0.01)


def test_pictures_too_small_for_the_convolutions_are_refused():
    with pytest.raises(ValueError, match=r"image_size=14 pixels"):
        PixelEncoder(9, 14)
