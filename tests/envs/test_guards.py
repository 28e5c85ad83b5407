"""Guards against bad actions and failed simulations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mimex.envs.guards import UnstableRecorder, checked_actions


def test_good_actions_pass_as_they_are() -> None:
    actions = np.array([[5.0, -7.0]], np.float32)
    np.testing.assert_array_equal(checked_actions(actions, (1, 2), np.zeros(1, int)), actions)


def test_a_bad_action_is_refused_with_environment_and_step() -> None:
    actions = np.zeros((3, 2))
    actions[2, 1] = np.inf
    with pytest.raises(ValueError, match=r"environment 2, episode step 41"):
        checked_actions(actions, (3, 2), np.array([1, 2, 41]))


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\), but 3 environment"):
        checked_actions(np.zeros(2), (3, 2), np.zeros(3, int))


def test_failed_states_are_saved_side_by_side(tmp_path: Path) -> None:
    recorder = UnstableRecorder(str(tmp_path / "new"), "FrankaPick")
    first = recorder.save(4, np.arange(3.0), np.ones(2), {"episode_step": 9})
    second = recorder.save(5, np.arange(3.0), np.ones(2), {})
    assert first is not None
    assert first != second
    saved = np.load(first)
    np.testing.assert_array_equal(saved["state"], [0, 1, 2])
    assert json.loads(str(saved["note"])) == {"task": "FrankaPick", "env": 4, "episode_step": 9}


def test_without_a_folder_nothing_is_saved() -> None:
    assert UnstableRecorder(None, "FrankaPick").save(0, np.zeros(1), np.zeros(1), {}) is None
