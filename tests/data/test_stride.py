"""Windows of steps some way apart: the same by every way to build them."""

import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from mimex.data.replay import ReplayBuffer
from mimex.data.tracker import WindowTracker
from mimex.data.windows import RolloutWindows


def by_hand(episode, length, stride):
    """Features and sums of actions of the window that ends at an episode's newest step.

    ``episode`` has a pair for each step: the observation, and the action that led to it.
    """
    newest, features, actions = len(episode) - 1, [], []
    for place in range(newest, newest - length * stride, -stride):
        if place >= 0:
            features.append(episode[place][0])
            actions.append(sum(a for _, a in episode[max(0, place - stride + 1) : place + 1]))
    return features[::-1], actions[::-1]


def assert_is(window, row, expected):
    valid = window.valid[row]
    assert window.features[row, valid, 0].tolist() == expected[0]
    assert window.actions[row, valid, 0].tolist() == expected[1]
    assert not valid[: len(valid) - len(expected[0])].any()


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 4),
    stride=st.integers(1, 4),
    ends=st.lists(st.booleans(), min_size=2, max_size=24),
    cut=st.integers(1, 23),
    ends_at=st.sampled_from(["observation", "next"]),
)
def test_rollouts_and_trackers_agree_with_a_plain_loop(length, stride, ends, cut, ends_at):
    steps = len(ends)
    now = torch.arange(1.0, steps + 1).view(-1, 1, 1)
    final, action = now + 100, 2 * now
    ended = torch.tensor(ends).view(-1, 1)
    # What each step's window should be.
    episodes, wanted, episode = [], [], [(1.0, 0.0)]
    for t in range(steps):
        episodes.append(list(episode))
        after = float(final[t]) if ends[t] else float(now[t]) + 1
        reached = [*episode, (after, float(action[t]))]
        wanted.append(by_hand(episode if ends_at == "observation" else reached, length, stride))
        episode = [(float(now[t]) + 1, 0.0)] if ends[t] else reached
    # Rollouts, the second one from a saved state.
    windows = RolloutWindows(length, 1, ends_at=ends_at, stride=stride)
    found = []
    for part in (slice(0, cut), slice(cut, None)):
        if not len(now[part]):
            continue
        again = RolloutWindows(length, 1, ends_at=ends_at, stride=stride)
        again.load_state_dict(windows.state_dict())
        windows = again
        more = {}
        if ends_at == "next":
            more = {"last": now[part][-1] + 1, "finals": final[part][ended[part]]}
        index = windows.build(now[part], ended[part], actions=action[part], **more)
        found += [(index[:], row) for row in range(len(index))]
    for (window, row), expected in zip(found, wanted, strict=True):
        assert_is(window, row, expected)
    # A tracker, which sees observations one by one.
    tracker = WindowTracker(1, length, 1, action_dim=1, stride=stride)
    for t in range(steps):
        start = torch.tensor([t == 0 or ends[t - 1]])
        led = action[t - 1] if t else torch.zeros(1, 1)
        window = tracker.push(now[t], start, led)
        assert_is(window, 0, by_hand(episodes[t], length, stride))


@pytest.mark.parametrize("ends_at", ["observation", "next"])
def test_replay_agrees_with_a_plain_loop(ends_at):
    length, stride = 3, 2
    buffer = ReplayBuffer(40, (1,), 1, pixels=False, window=length, stride=stride, ends_at=ends_at)
    paths, number = {}, 1.0
    for steps in (9, 2, 12, 30):
        episode = [(number, 0.0)]
        buffer.start([number])
        paths[number] = list(episode)
        for _ in range(steps):
            number += 1
            buffer.add([number], [2 * number], 0.0, False)
            episode.append((number, 2 * number))
            paths[number] = list(episode)
        number += 1
    batch = buffer.sample(64, torch.Generator().manual_seed(0))
    seen = torch.cat([batch.observations[:], batch.windows.others[:]])
    later = int(ends_at == "next")
    for row in range(64):
        expected = by_hand(paths[float(batch.observations[:][row]) + later], length, stride)
        valid = batch.windows.valid[row]
        assert seen[batch.windows.places[row]][valid, 0].tolist() == expected[0]
        assert batch.windows.actions[row][valid, 0].tolist() == expected[1]


@pytest.mark.parametrize("ends_at", ["observation", "next"])
def test_the_replay_of_stable_baselines_agrees_with_a_plain_loop(ends_at):
    sb3 = pytest.importorskip("mimex.interop.sb3")
    from mimex import MIMEx

    length, stride = 3, 2
    box = spaces.Box(-1e3, 1e3, (1,))
    pays = sb3.ReplayBonus(MIMEx(1, length, action_dim=1), ends_at=ends_at, stride=stride)
    buffer = sb3.BonusReplayBuffer(40, box, box, pays=pays)
    paths, number = {}, 1.0
    for steps in (9, 2, 12, 30):
        episode = [(number, 0.0)]
        for t in range(steps):
            paths[number] = list(episode)
            action = torch.tensor([[2.0 * number]]).numpy()
            old, new = (torch.tensor([[n]]).numpy() for n in (number, number + 1))
            buffer.add(old, new, action, torch.zeros(1).numpy(), [t == steps - 1], [{}])
            episode.append((number + 1, 2 * number))
            paths[number, "next"] = list(episode)
            number += 1
        number += 1
    slots = (torch.arange(28) + buffer.pos + length * stride).numpy() % 40
    window = buffer._windows(slots, 0 * slots, None)
    for row, slot in enumerate(slots):
        came_from = float(buffer.observations[slot, 0, 0])
        key = (came_from, "next") if ends_at == "next" else came_from
        assert_is(window, row, by_hand(paths[key], length, stride))


def test_codes_of_actions_cannot_be_summed():
    windows = RolloutWindows(2, 1, stride=2)
    with pytest.raises(ValueError, match=r"stride=2 sums the actions.*one-hot"):
        windows.build(
            torch.zeros(3, 1, 1), torch.zeros(3, 1).bool(), actions=torch.zeros(3, 1).int()
        )
    for kind in (RolloutWindows(2, 1), WindowTracker(1, 2, 1)):
        assert kind.stride == 1
    with pytest.raises(ValueError, match="stride=0"):
        WindowTracker(1, 2, 1, stride=0)
