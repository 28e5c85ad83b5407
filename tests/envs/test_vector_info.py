"""What is told of a step, as arrays and in Gymnasium's layout."""

from __future__ import annotations

import numpy as np

from mimex.envs.vector_info import laid_out, with_ended, with_masks, write_rows

ROWS = np.array([1], np.int32)


def test_every_array_gets_a_mask() -> None:
    mask = np.array([True, True])
    info = with_masks({"success": np.array([False, True])}, mask)
    assert list(info) == ["success", "_success"]
    assert info["_success"] is mask


def test_what_ended_moves_to_final_info() -> None:
    told = {"reward/a": np.array([1.0, 2.0, 3.0])}
    ended = np.array([False, True, False])
    info = laid_out(with_ended(told, np.arange(3.0)[:, None], ROWS), ended)
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
            "_final_info": ended,
            "_final_obs": ended,
        },
    )
    assert told["reward/a"].tolist() == [1.0, 2.0, 3.0]


def test_where_nothing_began_anew_all_is_of_the_step() -> None:
    info = laid_out({"success": np.array([False, True])}, np.array([True, False]))
    np.testing.assert_equal(info, {"success": np.array([False, True]), "_success": np.ones(2)})


def test_last_observations_are_copies() -> None:
    observation = {"image": np.arange(4).reshape(2, 2), "robot": np.ones((2, 1))}
    told = with_ended({}, observation, ROWS)
    write_rows(observation, ROWS, {"image": np.zeros((1, 2)), "robot": np.zeros((1, 1))})
    np.testing.assert_array_equal(told["final_obs"]["image"], [[2, 3]])
    np.testing.assert_array_equal(observation["image"], [[0, 1], [0, 0]])
    assert laid_out(told, np.array([False, True]))["final_obs"][1]["robot"] == [1.0]
