import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.states import assert_refused_or_loaded, same

from mimex.data.windows import RolloutWindows


class Stream:
    """A record of a vector environment: observation k of environment n is 100 n + k.

    All values are distinct, so they identify the observations of a window.
    """

    def __init__(self, num_envs, ends, autoreset):
        self.n, self.ends, self.autoreset = num_envs, ends, autoreset
        self.counter = [100.0 * n + 1 for n in range(num_envs)]
        self.now = [self._next(n) for n in range(num_envs)]
        self.episode = [[value] for value in self.now]  # observations of the current episode
        self.prev_actions = [[0.0] for _ in range(num_envs)]  # the action before each of them
        self.resetting = [False] * num_envs

    def _next(self, n):
        self.counter[n] += 1
        return self.counter[n]

    def rollout(self, steps, start, length):
        """The input of RolloutWindows, and the expected windows by a plain loop."""
        features = torch.zeros(steps, self.n, 1)
        ended = torch.zeros(steps, self.n, dtype=torch.bool)
        actions = torch.zeros(steps, self.n, 1)
        finals, expected = [], {"observation": [], "next": []}
        for t in range(steps):
            for n in range(self.n):
                features[t, n] = self.now[n]
                actions[t, n] = action = 1000.0 + 10 * (start + t) + n
                if self.resetting[n]:  # NEXT_STEP: this step ignores its action
                    expected["observation"].append(([], []))
                    expected["next"].append(([], []))
                    self._begin(n)
                    self.resetting[n] = False
                    continue
                expected["observation"].append(
                    (self.episode[n][-length:], self.prev_actions[n][-length:])
                )
                after = self._next(n)
                self.episode[n].append(after)
                self.prev_actions[n].append(action)
                expected["next"].append((self.episode[n][-length:], self.prev_actions[n][-length:]))
                self.now[n] = after
                ended[t, n] = (start + t, n) in self.ends
                if ended[t, n]:
                    if self.autoreset == "next_step":
                        self.resetting[n] = True
                    else:
                        finals.append(after)
                        self._begin(n)
        last = torch.tensor(self.now).unsqueeze(1)
        return features, ended, actions, last, torch.tensor(finals).reshape(-1, 1), expected

    def _begin(self, n):
        self.now[n] = self._next(n)
        self.episode[n], self.prev_actions[n] = [self.now[n]], [0.0]


def check(length, ends_at, autoreset, num_envs, rollouts, ends, interrupt=False):
    stream = Stream(num_envs, ends, autoreset)
    windows = RolloutWindows(length, num_envs, ends_at=ends_at, autoreset=autoreset)
    start = 0
    for steps in rollouts:
        features, ended, actions, last, finals, expected = stream.rollout(steps, start, length)
        if interrupt:
            state = windows.state_dict()
            windows = RolloutWindows(length, num_envs, ends_at=ends_at, autoreset=autoreset)
            windows.load_state_dict(state)
        if ends_at == "observation":
            index = windows.build(features, ended, actions=actions)
        else:
            given_finals = None if autoreset == "next_step" else finals
            index = windows.build(features, ended, last=last, finals=given_finals, actions=actions)
        got = index[torch.arange(len(index))]
        assert len(index) == steps * num_envs
        for row, (observations, prev_actions) in enumerate(expected[ends_at]):
            valid = got.valid[row]
            assert got.features[row, valid, 0].tolist() == observations
            assert got.actions[row, valid, 0].tolist() == prev_actions
            assert (got.features[row, ~valid] == 0).all()
            size = len(observations)
            assert valid.tolist() == [False] * (length - size) + [True] * size
            assert bool(index.real[row]) == bool(observations)
        start += steps


@settings(max_examples=150, deadline=None)
@given(
    length=st.integers(1, 6),
    ends_at=st.sampled_from(["observation", "next"]),
    autoreset=st.sampled_from(["same_step", "next_step", "disabled"]),
    num_envs=st.integers(1, 3),
    rollouts=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    ends=st.sets(st.tuples(st.integers(0, 23), st.integers(0, 2)), max_size=20),
    interrupt=st.booleans(),
)
def test_windows_equal_a_plain_loop(
    length, ends_at, autoreset, num_envs, rollouts, ends, interrupt
):
    check(length, ends_at, autoreset, num_envs, rollouts, ends, interrupt)


def test_the_last_step_of_an_episode_has_its_own_window():
    """The released code zeroed the terminal window, and its observation leaked into the next."""
    windows = RolloutWindows(3, 1)
    features = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).view(5, 1, 1)
    ended = torch.tensor([False, False, True, False, False]).view(5, 1)
    index = windows.build(features, ended)
    got = index[torch.arange(5)].features[..., 0].tolist()
    assert got == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 4], [0, 4, 5]]


def test_features_are_stored_once():
    windows = RolloutWindows(10, 4)
    index = windows.build(torch.randn(32, 4, 7), torch.zeros(32, 4, dtype=torch.bool))
    assert len(index.bank) == 1 + 4 * 9 + 32 * 4
    assert index.rows.shape == (128, 10)


def test_a_minibatch_gathers_only_its_windows():
    windows = RolloutWindows(4, 3)
    index = windows.build(torch.randn(8, 3, 2), torch.zeros(8, 3, dtype=torch.bool))
    everything = index[torch.arange(len(index))]
    some = index[torch.tensor([5, 2, 20])]
    assert torch.equal(some.features, everything.features[[5, 2, 20]])
    assert torch.equal(some.valid, everything.valid[[5, 2, 20]])


@pytest.mark.parametrize("fresh", [True, False])
def test_loading_a_corrupted_state_changes_nothing(fresh):
    def played(rollouts):
        windows = RolloutWindows(3, 2)
        for _ in range(rollouts):
            ended = torch.zeros(4, 2, dtype=torch.bool)
            windows.build(torch.randn(4, 2, 5), ended, actions=torch.randn(4, 2, 1))
        return windows

    saved, windows = played(1), played(0 if fresh else 1)
    assert assert_refused_or_loaded(windows, saved.state_dict()) > 15
    windows.load_state_dict(saved.state_dict())
    assert same(windows.state_dict(), saved.state_dict())


def test_invalid_input_raises_and_changes_nothing():
    windows = RolloutWindows(3, 2, ends_at="next")
    features, ended = torch.randn(4, 2, 5), torch.zeros(4, 2, dtype=torch.bool)
    windows.build(features, ended, last=torch.randn(2, 5), actions=features)
    before = windows.state_dict()
    ended_once = ended.clone()
    ended_once[1, 0] = True
    for call, message in [
        (lambda: windows.build(features, ended), "needs last"),
        (
            lambda: windows.build(features, ended_once, last=features[0]),
            r"finals has shape \(0, 5\)",
        ),
        (lambda: windows.build(features[:, :1], ended, last=features[0]), r"expected \(M, 2, D\)"),
        (lambda: windows.build(features, ended.float(), last=features[0]), "expected bool"),
        (lambda: windows.build(features[..., :3], ended, last=features[0]), "rollout before"),
        (
            lambda: windows.build(features, ended, last=features[0], actions=features[:2]),
            "actions has shape",
        ),
        (
            lambda: windows.build(features, ended, last=features[0], actions=features[..., :2]),
            "actions has",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    after = windows.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    with pytest.raises(ValueError, match="length=0"):
        RolloutWindows(0, 2)
    with pytest.raises(ValueError, match="ends_at='end'"):
        RolloutWindows(2, 2, ends_at="end")
    with pytest.raises(ValueError, match="expected"):
        RolloutWindows(4, 2).load_state_dict(before)


def test_greatest_returns_windows_without_padding():
    index = RolloutWindows(3, 2).build(torch.randn(6, 2, 4), torch.zeros(6, 2, dtype=torch.bool))
    scores = torch.arange(12.0).view(6, 2)
    scores[0, 0] = 100.0  # its window is padded
    chosen = index.greatest(scores, 4)
    torch.testing.assert_close(chosen.features, index[torch.tensor([11, 10, 9, 8])].features)
    assert chosen.valid.all()
    short = RolloutWindows(3, 2).build(torch.randn(1, 2, 4), torch.zeros(1, 2, dtype=torch.bool))
    assert len(short.greatest(torch.ones(1, 2), 4)) == 0
