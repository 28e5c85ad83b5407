import copy

import numpy as np
import pytest
import torch

import mimex
from mimex.bonus.base import EpisodicReward, require_no_episode
from mimex.types import Window

D, A, E = 3, 2, 5


def episode_windows(steps, envs, seed=0):
    """Windows (N, 2, D) of a walk of each environment, step by step."""
    g = torch.Generator().manual_seed(seed)
    walk = torch.randn(steps + 1, envs, D, generator=g)
    prev_actions = torch.randn(steps, envs, 2, A, generator=g)
    return [
        Window(torch.stack([walk[t], walk[t + 1]], 1), actions=prev_actions[t])
        for t in range(steps)
    ]


def textbook(bonus, visited, newest):
    """phi^T (ridge I + sum phi phi^T)^-1 phi, with the matrix written out."""
    weight, bias = (p.detach().double().numpy() for p in bonus.embed.parameters())
    phi = [weight @ state.double().numpy() + bias for state in (*visited, newest)]
    matrix = bonus.ridge * np.eye(E) + sum((np.outer(p, p) for p in phi[:-1]), np.zeros((E, E)))
    return phi[-1] @ np.linalg.inv(matrix) @ phi[-1]


def test_the_bonus_is_the_elliptical_bonus_of_the_episode():
    bonus = mimex.E3B(D, A, embed_dim=E, ridge=0.3)
    visited = {0: [], 1: []}
    for t, window in enumerate(episode_windows(40, 2)):
        starts = torch.tensor([t == 0, t in (0, 17)])
        rewards = bonus.follow(window, starts)
        for env in (0, 1):
            if starts[env]:  # the window also holds the observation before the first action
                visited[env] = [window.features[env, 0]]
            newest = window.features[env, -1]
            expected = textbook(bonus, visited[env], newest)
            assert float(rewards[env]) == pytest.approx(expected, rel=1e-3), (t, env)
            visited[env].append(newest)


def test_the_first_observation_of_an_episode_is_rewarded_0_and_enters_the_matrix():
    bonus = mimex.E3B(D, A, embed_dim=E)
    first, second = episode_windows(2, 3)  # the newest step of `first` is the older of `second`
    alone = Window(first.features, torch.tensor([[False, True]] * 3), first.actions)
    assert (bonus.reward(alone) == 0).all()
    assert (bonus.learn(alone)[0] == 0).all()
    assert (bonus.follow(alone, torch.ones(3, dtype=torch.bool)) == 0).all()
    rewards = bonus.follow(second, torch.zeros(3, dtype=torch.bool))
    for row, reward in enumerate(rewards.tolist()):
        before, newest = second.features[row]
        assert reward == pytest.approx(textbook(bonus, [before], newest), rel=1e-3)
    assert torch.allclose(rewards, bonus.reward(second), rtol=1e-4)


@pytest.mark.parametrize("ends_at", ["observation", "next"])
def test_only_the_first_observation_of_an_episode_is_rewarded_0(ends_at):
    """In a wrapped environment, with both values of ends_at."""
    bonus = mimex.E3B(D, A, embed_dim=E)
    walk = torch.randn(6, 2, D, generator=torch.Generator().manual_seed(0))
    windows = mimex.RolloutWindows(2, 2, ends_at=ends_at)
    ended = torch.zeros(5, 2, dtype=torch.bool)
    last = walk[5] if ends_at == "next" else None
    index = windows.build(walk[:5], ended, last=last, actions=torch.randn(5, 2, A))
    for t, steps in enumerate(torch.arange(10).view(5, 2)):
        rewards = bonus.follow(index[steps], index.starts[steps])
        newest = t + (ends_at == "next")
        for env in (0, 1):
            expected = textbook(bonus, walk[:newest, env], walk[newest, env]) if newest else 0.0
            assert float(rewards[env]) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    "starts", [torch.ones(3, dtype=torch.bool), torch.ones(2), np.ones((2, 1), bool), [1, 0]]
)
def test_starts_of_a_wrong_shape_raise_and_change_nothing(starts):
    bonus = mimex.E3B(D, A, embed_dim=E)
    window = episode_windows(1, 2)[0]
    with pytest.raises(ValueError, match="starts is"):
        bonus.follow(window, starts)
    assert bonus.inverses is None
    assert bonus.follow(window, np.array([True, True])).shape == (2,)


def test_environments_that_are_not_stepped_keep_their_episode():
    both, one = mimex.E3B(D, A, embed_dim=E), mimex.E3B(D, A, embed_dim=E)
    for t, window in enumerate(episode_windows(6, 2)):
        starts = torch.full((2,), t == 0)
        expected = both.follow(window, starts)
        for env in (1, 0):  # in any order, one at a time
            row = slice(env, env + 1)
            alone = Window(window.features[row], window.valid[row], window.actions[row])
            rewards = one.follow(alone, starts[row], torch.tensor([env]))
            assert torch.allclose(rewards, expected[row], rtol=1e-4)


def test_reward_scores_a_window_as_if_it_started_an_episode():
    bonus = mimex.E3B(D, A, embed_dim=E)
    window = episode_windows(1, 4)[0]
    for row, rewards in enumerate(bonus.reward(window).tolist()):
        before, newest = window.features[row]
        assert rewards == pytest.approx(textbook(bonus, [before], newest), rel=1e-3)
    assert bonus.inverses is None  # follow was not called


def test_repeated_steps_of_an_episode_have_a_smaller_reward():
    bonus = mimex.E3B(D, A, embed_dim=E)
    same, other = episode_windows(2, 8)
    start = Window(same.features, torch.tensor([[False, True]] * 8), same.actions)
    bonus.follow(start, torch.ones(8, dtype=torch.bool))
    size = torch.tensor([textbook(bonus, [], state) for state in same.features[:, -1]]).float()
    again = torch.zeros(8, dtype=torch.bool)
    for visits in range(1, 5):
        repeated = bonus.follow(same, again)
        assert torch.allclose(repeated, size / (1 + visits * size), rtol=1e-2)
    assert (bonus.follow(other, again) > repeated).all()


def test_the_features_learn_to_predict_the_action():
    bonus = mimex.E3B(D, A, lr=3e-3)
    g = torch.Generator().manual_seed(0)
    for _ in range(150):
        states, actions = torch.randn(128, D, generator=g), torch.randn(128, A, generator=g)
        moved = states.clone()
        moved[:, :A] += actions
        prev_actions = torch.stack([torch.zeros_like(actions), actions], 1)
        _, metrics = bonus.learn(Window(torch.stack([states, moved], 1), None, prev_actions))
    assert metrics["bonus/loss"] < 0.2  # the variance is 1


def test_an_episode_continues_bit_for_bit_after_loading():
    straight = mimex.E3B(D, A, embed_dim=E)
    windows = episode_windows(20, 3)
    for t, window in enumerate(windows[:10]):
        straight.follow(window, torch.full((3,), t == 0))
        straight.learn(window)
    resumed = mimex.E3B(D, A, embed_dim=E, seed=9)
    resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
    again = torch.zeros(3, dtype=torch.bool)
    for window in windows[10:]:
        assert torch.equal(straight.follow(window, again), resumed.follow(window, again))
        assert torch.equal(straight.learn(window)[0], resumed.learn(window)[0])


def test_saved_episodes_of_a_wrong_shape_are_not_loaded():
    saved, other = mimex.E3B(D, A, embed_dim=E), mimex.E3B(D, A, embed_dim=E)
    saved.follow(episode_windows(1, 3)[0], torch.ones(3, dtype=torch.bool))
    broken = saved.state_dict() | {"episodes": torch.zeros(3, 2, 2)}
    with pytest.raises(ValueError, match=r"episodes has shape \(3, 2, 2\)"):
        other.load_state_dict(broken)
    assert other.inverses is None


def test_an_invalid_step_raises_and_changes_nothing():
    bonus = mimex.E3B(D, A, embed_dim=E)
    window = episode_windows(1, 2)[0]
    bonus.follow(window, torch.ones(2, dtype=torch.bool))
    before = bonus.inverses.clone()
    poisoned = window.features.clone()
    poisoned[1, -1, 0] = torch.nan
    with pytest.raises(ValueError, match="features has 1 NaN"):
        bonus.follow(Window(poisoned, None, window.actions), torch.zeros(2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"starts is torch.bool of shape \(3,\)"):
        bonus.follow(window, torch.zeros(3, dtype=torch.bool))
    assert torch.equal(before, bonus.inverses)


def test_padding_is_not_part_of_the_episode():
    bonus = mimex.E3B(D, A, embed_dim=E)
    window = episode_windows(1, 2)[0]
    bonus.follow(window, torch.ones(2, dtype=torch.bool))
    before = bonus.inverses.clone()
    empty = Window(window.features, torch.zeros(2, 2, dtype=torch.bool), window.actions)
    assert (bonus.follow(empty, torch.zeros(2, dtype=torch.bool)) == 0).all()
    assert torch.equal(before, bonus.inverses)


def test_e3b_without_whole_episodes_raises_with_the_reason():
    assert isinstance(mimex.E3B(), EpisodicReward)
    assert not isinstance(mimex.ICM(), EpisodicReward)
    require_no_episode(mimex.ICM(), "replay")
    with pytest.raises(ValueError, match="E3B needs its episode's whole past"):
        require_no_episode(mimex.E3B(), "replay")
