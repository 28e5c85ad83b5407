"""The same code for NumPy arrays and PyTorch tensors."""

import numpy as np
import pytest
import torch

from mimex.envs import reward
from mimex.envs.arrays import concat_columns, copied, namespace, overwrite, rows_of, to_numpy
from mimex.envs.tasks.base import approach_terms, distances

KINDS = pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])


@KINDS
def test_each_array_type_has_its_functions(kind) -> None:
    assert namespace(kind([1.0])) is (np if kind is np.asarray else torch)


@KINDS
def test_copies_share_no_memory_and_keep_their_type(kind) -> None:
    array = kind([1.0, 2.0])
    copy = copied(array)
    array[0] = 5.0
    assert type(copy) is type(array)
    np.testing.assert_array_equal(to_numpy(copy), [1.0, 2.0])


@KINDS
def test_values_are_written_in_place_and_keep_the_type(kind) -> None:
    for there, values in ((np.zeros(2, np.int64), [3, 4]), (np.zeros(2, bool), [True, False])):
        array = kind(there.copy())
        overwrite(array, np.array(values))
        np.testing.assert_array_equal(to_numpy(array), values)
        assert to_numpy(array).dtype == there.dtype


@KINDS
def test_rows_of_a_mask(kind) -> None:
    rows = rows_of(kind(np.array([True, False, True])))
    np.testing.assert_array_equal(rows, [0, 2])
    assert rows.dtype == np.int32


@KINDS
def test_arrays_are_concatenated_as_float32_columns(kind) -> None:
    columns = concat_columns([kind(np.zeros((2, 1))), kind(np.ones((2, 2)))])
    np.testing.assert_array_equal(to_numpy(columns), [[0, 1, 1]] * 2)
    assert to_numpy(columns).dtype == np.float32


def test_a_dict_is_converted_part_by_part() -> None:
    parts = to_numpy({"a": np.zeros(2), "b": {"c": torch.ones(2)}})
    assert isinstance(parts["b"]["c"], np.ndarray)


@KINDS
def test_rewards_are_equal_on_numpy_and_torch(kind) -> None:
    points = kind(np.array([[[0.0, 3.0, 4.0]] * 4, [[0.0, 0.0, 0.0]] * 4]))  # (2, 4, 3)
    away = distances(points, kind(np.zeros(3)))
    np.testing.assert_allclose(to_numpy(away), [[5.0] * 4, [0.0] * 4])
    terms = approach_terms(reward.near(away, 1.0, 1.0), "fingers")
    np.testing.assert_allclose(to_numpy(terms["finger_distance"]), [0.5, 1.5])
    terms["bonus"] = reward.bonus(away[:, 0] > 1.0)
    terms["action_penalty"] = reward.action_penalty(kind(np.array([[1.0, 2.0], [0.0, 0.0]])))
    weights = {"finger_distance": 2.0, "thumb_distance": 0.0, "bonus": 4.0, "action_penalty": 0.1}
    np.testing.assert_allclose(to_numpy(reward.total(terms, weights)), [2.5, 3.0])
