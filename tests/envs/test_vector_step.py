"""Invalid actions, info as arrays and in Gymnasium's layout, and records of failures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mimex.envs.vector_step import (
    UnstableRecorder,
    checked_actions,
    laid_out,
    with_ended,
    with_masks,
    write_rows,
)

ROWS = np.array([1], np.int32)


def test_valid_actions_are_unchanged() -> None:
    actions = np.array([[5.0, -7.0]], np.float32)
    np.testing.assert_array_equal(checked_actions(actions, (1, 2), np.zeros(1, int)), actions)


def test_an_invalid_action_raises_with_environment_and_step() -> None:
    actions = np.zeros((3, 2))
    actions[2, 1] = np.inf
    with pytest.raises(ValueError, match=r"environment 2, episode step 41"):
        checked_actions(actions, (3, 2), np.array([1, 2, 41]))


def test_a_wrong_shape_raises() -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\), but 3 environment"):
        checked_actions(np.zeros(2), (3, 2), np.zeros(3, int))


def test_every_array_gets_a_mask() -> None:
    mask = np.array([True, True])
    info = with_masks({"success": np.array([False, True])}, mask)
    assert list(info) == ["success", "_success"]
    assert info["_success"] is mask


def test_info_of_ended_episodes_is_in_final_info() -> None:
    given = {"reward/a": np.array([1.0, 2.0, 3.0])}
    ended = np.array([False, True, False])
    info = laid_out(with_ended(given, np.arange(3.0)[:, None], ROWS), ended)
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
    assert given["reward/a"].tolist() == [1.0, 2.0, 3.0]


def test_without_resets_info_belongs_to_the_step() -> None:
    info = laid_out({"success": np.array([False, True])}, np.array([True, False]))
    np.testing.assert_equal(info, {"success": np.array([False, True]), "_success": np.ones(2)})


def test_last_observations_are_copies() -> None:
    observation = {"image": np.arange(4).reshape(2, 2), "robot": np.ones((2, 1))}
    given = with_ended({}, observation, ROWS)
    write_rows(observation, ROWS, {"image": np.zeros((1, 2)), "robot": np.zeros((1, 1))})
    np.testing.assert_array_equal(given["final_obs"]["image"], [[2, 3]])
    np.testing.assert_array_equal(observation["image"], [[0, 1], [0, 0]])
    assert laid_out(given, np.array([False, True]))["final_obs"][1]["robot"] == [1.0]


def test_failed_states_are_saved_in_separate_files(tmp_path: Path) -> None:
    recorder = UnstableRecorder(str(tmp_path / "new"), "FrankaPick")
    first = recorder.save(4, np.arange(3.0), np.ones(2), {"episode_step": 9})
    second = recorder.save(5, np.arange(3.0), np.ones(2), {})
    assert first is not None
    assert first != second
    saved = np.load(first)
    np.testing.assert_array_equal(saved["state"], [0, 1, 2])
    assert json.loads(str(saved["note"])) == {"task": "FrankaPick", "env": 4, "episode_step": 9}


def test_without_a_folder_no_state_is_saved() -> None:
    assert UnstableRecorder(None, "FrankaPick").save(0, np.zeros(1), np.zeros(1), {}) is None
