"""All ways to build windows give bitwise equal results."""

from functools import reduce
from operator import add

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from mimex import MIMEx, Window
from mimex.bonus.masks import AllMask
from mimex.data.replay import ReplayBuffer
from mimex.data.tracker import WindowTracker
from mimex.data.windows import (
    PADDING,
    RolloutWindows,
    ring_indices,
    sum_actions,
    window_indices,
)


class Stream:
    """T steps of N environments with SAME_STEP autoreset; observations are single features.

    Attributes:
        now: ``(T + 1, N, 1)`` on which the policy acted, and after the last step.
        final: ``(T, N, 1)`` the final observation of each step that ended an episode.
        windows: ``(T, N)`` of pairs: the window at each step, by a plain loop.
    """

    def __init__(self, ends, length, stride, ends_at, seed=0):
        random = np.random.default_rng(seed)
        self.ended = np.array(ends, bool)  # (T, N)
        steps, envs = self.ended.shape
        self.now = np.arange(1.0, (steps + 1) * envs + 1, dtype=np.float32).reshape(-1, envs, 1)
        self.final = -self.now[:-1]
        self.actions = random.normal(size=(steps, envs, 2)).astype(np.float32)
        self.windows = [[None] * envs for _ in range(steps)]
        for n in range(envs):
            episode = [(self.now[0, n], np.zeros(2, np.float32))]
            for t in range(steps):
                over = self.ended[t, n]
                next_obs = (self.final[t, n] if over else self.now[t + 1, n], self.actions[t, n])
                seen = episode if ends_at == "observation" else [*episode, next_obs]
                self.windows[t][n] = plain(seen, length, stride)
                start = (self.now[t + 1, n], np.zeros(2, np.float32))
                episode = [start] if over else [*episode, next_obs]

    def expected(self, steps, envs):
        """The windows of some steps of some environments as a batch."""
        parts = zip(*(self.windows[t][n] for t, n in zip(steps, envs, strict=True)), strict=True)
        features, valid, actions = (torch.as_tensor(np.stack(part)) for part in parts)
        return Window(features, valid, actions)


def plain(episode, length, stride):
    """Features, validity and summed actions of the window at the newest step of an episode."""
    features = np.zeros((length, 1), np.float32)
    valid, actions = np.zeros(length, bool), np.zeros((length, 2), np.float32)
    for k in range(length):
        position = len(episode) - 1 - (length - 1 - k) * stride
        if position >= 0:
            features[k], valid[k] = episode[position][0], True
            between = [
                prev_actions
                for _, prev_actions in episode[max(0, position - stride + 1) : position + 1]
            ]
            actions[k] = reduce(add, between[::-1])
    return features, valid, actions


def assert_same(found, expected):
    assert torch.equal(found.valid, expected.valid)
    assert torch.equal(found.features, expected.features)
    assert torch.equal(found.actions, expected.actions)


def assert_cut(found, expected):
    """Overwritten steps are not valid; all other steps are equal."""
    assert not (found.valid & ~expected.valid).any()
    assert found.valid[:, -1].all()
    assert torch.equal(found.features, expected.features * found.valid[..., None])


STREAMS = {
    "length": st.integers(1, 4),
    "stride": st.integers(1, 4),
    "ends_at": st.sampled_from(["observation", "next"]),
    "ends": st.integers(1, 3).flatmap(
        lambda envs: st.lists(
            st.lists(st.sampled_from([False] * 4 + [True]), min_size=envs, max_size=envs),
            min_size=2,
            max_size=40,
        )
    ),
}
EVERY = settings(max_examples=60, deadline=None)


@EVERY
@given(**STREAMS, cut=st.integers(1, 39))
def test_windows_of_rollouts_of_any_length(length, stride, ends_at, ends, cut):
    stream = Stream(ends, length, stride, ends_at)
    steps, envs = stream.ended.shape
    windows = RolloutWindows(length, envs, ends_at=ends_at, stride=stride)
    for part in (slice(0, min(cut, steps)), slice(cut, steps)):
        if part.start >= steps:
            continue
        state = windows.state_dict()
        windows = RolloutWindows(length, envs, ends_at=ends_at, stride=stride)
        windows.load_state_dict(state)
        more = {}
        if ends_at == "next":
            finals = stream.final[part][stream.ended[part]]
            more = {"last": stream.now[part.stop], "finals": finals}
        index = windows.build(
            stream.now[part], stream.ended[part], actions=stream.actions[part], **more
        )
        own = np.arange(part.start, part.stop)
        assert_same(
            index[:], stream.expected(np.repeat(own, envs), np.tile(np.arange(envs), len(own)))
        )


@EVERY
@given(**STREAMS)
def test_windows_of_step_by_step_loops(length, stride, ends_at, ends):
    stream = Stream(ends, length, stride, ends_at)
    steps, envs = stream.ended.shape
    tracker = WindowTracker(envs, length, 1, action_dim=2, stride=stride)
    came_from = tracker.push(stream.now[0], np.ones(envs, bool), np.zeros((envs, 2)))
    for t in range(steps):
        over = stream.ended[t]
        arrived = np.where(over[:, None], stream.final[t], stream.now[t + 1])
        next_obs = tracker.peek(arrived, stream.actions[t])
        expected = stream.expected([t] * envs, range(envs))
        assert_same(came_from if ends_at == "observation" else next_obs, expected)
        came_from = tracker.push(stream.now[t + 1], over, stream.actions[t])


@EVERY
@given(**STREAMS, slots=st.integers(20, 60))
def test_windows_of_our_replay_buffer_before_and_after_wrapping_around(
    length, stride, ends_at, ends, slots
):
    stream = Stream(ends, length, stride, ends_at)
    steps, envs = stream.ended.shape
    ring = ReplayBuffer(
        slots * envs, (1,), 2, pixels=False, num_envs=envs,
        window=length, stride=stride, ends_at=ends_at,
    )  # fmt: skip
    positions = []  # (t, n, index of the observation at which the window ends)
    for n in range(envs):
        ring.start(stream.now[0, n], n)
        for t in range(steps):
            positions.append((t, n, ring.added[n] - 1 + (ends_at == "next")))
            over = stream.ended[t, n]
            next_obs = stream.final[t, n] if over else stream.now[t + 1, n]
            ring.add(next_obs, stream.actions[t, n], 0.0, False, n)
            if over:
                ring.start(stream.now[t + 1, n], n)
    for whole in (True, False):
        reach = length * stride if whole else 1
        kept = [p for p in positions if p[2] - reach + 1 >= max(0, ring.added[p[1]] - slots)]
        kept = kept if whole else list(set(positions) & set(kept))
        if not kept:
            continue
        at, owners, numbers = zip(*kept, strict=True)
        found = ring.windows_at(torch.tensor(owners), torch.tensor(numbers))
        features = found.others[:][found.positions] * found.valid[..., None]
        window = Window(features, found.valid, found.actions)
        (assert_same if whole else assert_cut)(window, stream.expected(at, owners))


@EVERY
@given(**STREAMS, slots=st.integers(20, 60))
def test_windows_of_sb3s_replay_buffer_before_and_after_wrapping_around(
    length, stride, ends_at, ends, slots
):
    sb3 = pytest.importorskip("mimex.interop.sb3")
    stream = Stream(ends, length, stride, ends_at)
    steps, envs = stream.ended.shape
    bonus = MIMEx(None, length, mask=AllMask(), action_dim=2)
    held = sb3.ReplayBonus(bonus, ends_at=ends_at, stride=stride)
    boxes = spaces.Box(-1e3, 1e3, (1,)), spaces.Box(-9, 9, (2,))
    buffer = sb3.BonusReplayBuffer(slots * envs, *boxes, n_envs=envs, bonus=held)
    for t in range(steps):
        over = stream.ended[t]
        arrived = np.where(over[:, None], stream.final[t], stream.now[t + 1])
        step = (stream.now[t], arrived, stream.actions[t], np.zeros(envs), over)
        buffer.add(*step, [{}] * envs)
    oldest = max(0, steps - slots)
    for first, check in ((length * stride + 1, assert_same), (0, assert_cut)):
        at = np.arange(min(oldest + first if oldest else 0, steps), steps)
        if not len(at):
            continue
        at, owners = np.repeat(at, envs), np.tile(np.arange(envs), len(at))
        check(buffer._windows(at % slots, owners, None), stream.expected(at, owners))


def test_window_indices_stop_at_padding():
    before = torch.tensor([PADDING, PADDING, 1, 2, 3, 4])
    found = window_indices(torch.tensor([5, 2, PADDING]), before.__getitem__, 2, 2)
    assert found.tolist() == [[[2, 3], [4, 5]], [[0, 0], [1, 2]], [[0, 0], [0, 0]]]
    assert window_indices(torch.tensor([5]), before.__getitem__, 0).shape == (1, 0, 1)


def test_ring_indices_repeat_the_oldest_slot_for_padding():
    rows, known = ring_indices(torch.tensor([7, 5]), torch.tensor([4, 5]), 6, 2, 3)
    assert rows.tolist() == [[[4, 4, 4], [5, 0, 1]], [[5, 5, 5], [5, 5, 5]]]
    assert known.tolist() == [
        [[False, False, True], [True] * 3],
        [[False] * 3, [False, False, True]],
    ]


def test_integer_actions_are_gathered_but_cannot_be_summed():
    codes = torch.tensor([[[3], [2]]])
    assert sum_actions(codes, torch.tensor([[[False], [True]]])).tolist() == [[0, 2]]
    windows = RolloutWindows(2, 1, stride=2)
    with pytest.raises(ValueError, match=r"stride=2 sums the actions.*one-hot"):
        windows.build(
            torch.zeros(3, 1, 1), torch.zeros(3, 1).bool(), actions=torch.zeros(3, 1).int()
        )
    with pytest.raises(ValueError, match="stride=0"):
        WindowTracker(1, 2, 1, stride=0)
