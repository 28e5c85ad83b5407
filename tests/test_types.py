import numpy as np
import pytest
import torch

from mimex.types import Window


def test_numpy_arrays_are_taken_without_a_copy():
    array = np.zeros((2, 3, 4), np.float32)
    window = Window(array)
    array[1, 2, 3] = 7.0
    assert float(window.features[1, 2, 3]) == 7.0
    assert window.valid.all()
    assert (len(window), window.length) == (2, 3)


def test_features_come_without_gradient():
    assert not Window(torch.ones(1, 2, 3, requires_grad=True)).features.requires_grad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": torch.zeros(3)}, r"features has shape \(3,\)"),
        ({"features": torch.zeros(2, 3, 4), "valid": torch.ones(2, 3)}, "expected bool"),
        ({"features": torch.zeros(2, 3, 4), "valid": torch.ones(3, 2, dtype=bool)}, r"\(2, 3\)"),
        ({"features": torch.zeros(2, 3, 4), "actions": torch.zeros(2, 4, 1)}, "actions has shape"),
    ],
)
def test_shapes_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        Window(**arguments)


def test_what_is_no_array_is_refused_by_name():
    with pytest.raises(TypeError, match="features cannot be read"):
        Window([["a"]])
