import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.states import assert_refused_or_loaded

from mimex.data.tracker import WindowTracker


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 5),
    starts=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=15),
    saved_at=st.integers(0, 14),
)
def test_windows_equal_a_plain_loop(length, starts, saved_at):
    tracker = WindowTracker(2, length, 1, action_dim=1)
    episodes = [[], []]
    for t, row in enumerate(starts):
        if t == saved_at:
            state, tracker = tracker.state_dict(), WindowTracker(2, length, 1, action_dim=1)
            tracker.load_state_dict(state)
        features = torch.tensor([[10.0 + t], [20.0 + t]])
        window = tracker.push(features, torch.tensor(row), features + 100)
        for n in range(2):
            if row[n]:
                episodes[n] = []
            prev_actions = 0.0 if row[n] else float(features[n]) + 100
            episodes[n].append((float(features[n]), prev_actions))
            expected = episodes[n][-length:]
            valid = window.valid[n]
            assert window.features[n, valid, 0].tolist() == [o for o, _ in expected]
            assert window.actions[n, valid, 0].tolist() == [a for _, a in expected]
            assert (window.features[n, ~valid] == 0).all()
            assert valid.tolist() == [False] * (length - len(expected)) + [True] * len(expected)


def test_returned_windows_do_not_change_later():
    """In the released code windows shared memory with the history, which was set to zeros."""
    tracker = WindowTracker(1, 3, 1)
    windows = [tracker.push([[float(t)]], torch.tensor([t == 0])) for t in range(1, 5)]
    kept = [w.features.clone() for w in windows]
    tracker.push([[9.0]], torch.tensor([True]))
    windows[-1].features.zero_()
    last = tracker.push([[10.0]], torch.tensor([False]))
    assert last.features[0, :, 0].tolist() == [0.0, 9.0, 10.0]
    assert all(torch.equal(w.features, k) for w, k in zip(windows[:-1], kept[:-1], strict=True))


def test_peek_returns_windows_without_storing_the_observation():
    tracker = WindowTracker(1, 3, 1)
    tracker.push([[1.0]], torch.tensor([True]))
    tracker.push([[2.0]], torch.tensor([False]))
    assert tracker.peek([[3.0]]).features[0, :, 0].tolist() == [1.0, 2.0, 3.0]
    window = tracker.push([[7.0]], torch.tensor([True]))
    assert window.features[0, :, 0].tolist() == [0.0, 0.0, 7.0]


def test_loading_a_corrupted_state_changes_nothing():
    saved, tracker = WindowTracker(2, 3, 4, 1), WindowTracker(2, 3, 4, 1)
    saved.push(torch.randn(2, 4), torch.ones(2, dtype=torch.bool), torch.ones(2, 1))
    assert assert_refused_or_loaded(tracker, saved.state_dict()) == 4 * 3


def test_discrete_observations_and_actions_become_one_hot():
    tracker = WindowTracker(2, 2, 3, action_dim=2)
    window = tracker.push(np.array([2, 0]), np.array([True, True]), np.array([1, 1]))
    assert window.features[:, -1].tolist() == [[0, 0, 1], [1, 0, 0]]
    window = tracker.push(torch.tensor([1, 1]), torch.tensor([False, False]), torch.tensor([1, 0]))
    assert window.actions[:, -1].tolist() == [[0, 1], [1, 0]]
    with pytest.raises(ValueError, match="features has codes from 0 to 3; expected 0 to 2"):
        tracker.push([0, 3], torch.tensor([False, False]), [0, 0])


def test_invalid_input_raises():
    tracker = WindowTracker(2, 3, 4)
    with pytest.raises(ValueError, match=r"features has shape \(2, 5\)"):
        tracker.push(torch.zeros(2, 5), torch.zeros(2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"starts is torch\.float32"):
        tracker.push(torch.zeros(2, 4), torch.zeros(2))
    with pytest.raises(ValueError, match="length=0"):
        WindowTracker(2, 0, 4)
    with pytest.raises(ValueError, match="action_dim=0"):
        WindowTracker(2, 3, 4, 0)
    with pytest.raises(ValueError, match=r"expected torch.float32 of \(2, 3, 4\)"):
        tracker.load_state_dict(WindowTracker(2, 2, 4).state_dict())
    with pytest.raises(ValueError, match="action_dim"):
        WindowTracker(2, 3, 4, action_dim=1).push(
            torch.zeros(2, 4), torch.zeros(2, dtype=torch.bool)
        )
