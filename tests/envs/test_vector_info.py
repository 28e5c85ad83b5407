"""Gymnasium's layout of info."""

from __future__ import annotations

import numpy as np

from mimex.envs.vector_info import final_observations, split_ended, with_masks, write_rows

ROWS = np.array([1], np.int32)


def test_every_array_gets_a_mask() -> None:
    mask = np.array([True, True])
    info = with_masks({"success": np.array([False, True])}, mask)
    assert list(info) == ["success", "_success"]
    assert info["_success"] is mask


def test_what_ended_moves_to_final_info() -> None:
    seen = np.arange(3.0)[:, None]
    info = split_ended({"reward/a": np.array([1.0, 2.0, 3.0])}, seen, ROWS)
    final = info.pop("final_obs")
    assert [each is None for each in final] == [True, False, True]
    assert final[1] == [1.0]
    np.testing.assert_equal(
        info,
        {
            "reward/a": np.array([1.0, 0.0, 3.0]),
            "_reward/a": np.array([True, False, True]),
            "final_info": {
                "reward/a": np.array([0.0, 2.0, 0.0]),
                "_reward/a": np.array([False, True, False]),
            },
            "_final_info": np.array([False, True, False]),
            "_final_obs": np.array([False, True, False]),
        },
    )


def test_final_observations_are_copies() -> None:
    observation = {"image": np.arange(4).reshape(2, 2), "robot": np.ones((2, 1))}
    final = final_observations(observation, ROWS, 2)
    write_rows(observation, ROWS, {"image": np.zeros((1, 2)), "robot": np.zeros((1, 1))})
    assert final[0] is None
    np.testing.assert_array_equal(final[1]["image"], [2, 3])
    np.testing.assert_array_equal(observation["image"], [[0, 1], [0, 0]])
