"""The small games: rules, difficulty and saved states."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import mimex.envs  # noqa: F401
from mimex.envs.small import DeepSea, FlagCar, OrderedButtons

LEFT, RIGHT, PRESS = OrderedButtons.LEFT, OrderedButtons.RIGHT, OrderedButtons.PRESS


def rightmost(sea: DeepSea) -> np.ndarray:
    """The actions that move right in each environment's cell."""
    return sea._right[sea.arrays["steps"], sea.arrays["column"]]


def test_moving_right_in_every_step_reaches_the_treasure_at_a_cost() -> None:
    sea = DeepSea(2, size=6)
    sea.reset(seed=0)
    total = np.zeros(2)
    for step in range(6):
        actions = rightmost(sea)
        actions[1] = 1 - actions[1]  # the other one always moves left
        _, rewards, terminated, truncated, info = sea.step(actions)
        total += rewards
        assert terminated.all() == (step == 5)
        assert not truncated.any()
    np.testing.assert_allclose(total, [1 - 0.01, 0.0])
    np.testing.assert_array_equal(info["final_info"]["success"], [True, False])


def test_one_step_to_the_left_loses_the_treasure() -> None:
    sea = DeepSea(6, size=6)
    sea.reset(seed=0)
    for step in range(6):
        actions = rightmost(sea)
        actions[step] = 1 - actions[step]  # environment k moves left once, at step k
        *_, info = sea.step(actions)
    assert not info["final_info"]["success"].any()


def test_random_actions_solve_deep_sea_with_the_expected_probability() -> None:
    sea, generator = DeepSea(4096, size=6), np.random.default_rng(0)
    sea.reset(seed=0)
    for _ in range(6):
        *_, info = sea.step(generator.integers(2, size=4096))
    assert 30 < info["final_info"]["success"].sum() < 105  # 64 of 4,096 expected


def test_the_action_that_moves_right_depends_on_cell_and_mapping() -> None:
    one, other = DeepSea(mapping=0), DeepSea(mapping=1)
    assert 0.3 < one._right.mean() < 0.7
    assert (one._right != other._right).any()


def walk(buttons: OrderedButtons, actions: list[int]) -> np.ndarray:
    """Rewards of one environment that starts at button A."""
    buttons.reset(seed=0)
    buttons.arrays["cell"][:] = 0
    return np.array([buttons.step(np.array([action]))[1][0] for action in actions])


@pytest.mark.parametrize(
    ("between", "rewarded"),
    [
        ([RIGHT] * 4, True),
        ([LEFT] * 4, True),  # it is a ring
        ([RIGHT, LEFT, RIGHT, RIGHT, RIGHT, RIGHT], True),  # two steps too many: the slack
        ([RIGHT, LEFT, RIGHT, LEFT, RIGHT, RIGHT, RIGHT, RIGHT], False),
    ],
)
def test_b_is_rewarded_in_time_after_a(between: list[int], rewarded: bool) -> None:
    rewards = walk(OrderedButtons(cells=8, slack=2), [PRESS, *between, PRESS])
    np.testing.assert_allclose(rewards[-1], (1.0 if rewarded else 0.0) - 0.001)
    assert (rewards[:-1] <= 0).all()


def test_walking_around_the_ring_does_not_terminate() -> None:
    buttons = OrderedButtons(cells=8, episode_steps=2)
    buttons.reset(seed=0)
    buttons.step(np.array([LEFT]))
    _, _, terminated, truncated, _ = buttons.step(np.array([LEFT]))
    assert (terminated[0], truncated[0]) == (False, True)


def test_b_alone_and_b_twice_have_no_additional_reward() -> None:
    assert walk(OrderedButtons(cells=8), [RIGHT] * 4 + [PRESS])[-1] < 0
    assert walk(OrderedButtons(cells=8), [PRESS] + [RIGHT] * 4 + [PRESS, PRESS])[-1] < 0


def test_a_memoryless_policy_solves_ordered_buttons_and_random_actions_do_not() -> None:
    buttons, generator = OrderedButtons(256), np.random.default_rng(0)

    def reactive(seen: np.ndarray) -> np.ndarray:
        at_button = np.isin(seen[:, 0], (0, 10)) & (seen[:, 1] == 0)
        return np.where(at_button, PRESS, RIGHT)

    solved = {}
    for name in ("reactive", "chance"):
        seen, _ = buttons.reset(seed=1)
        for _ in range(buttons.episode_steps):
            chosen = reactive(seen) if name == "reactive" else generator.integers(3, size=256)
            seen, *_, info = buttons.step(chosen)
        solved[name] = info["final_info"]["success"].mean()
    assert solved["reactive"] == 1.0
    assert solved["chance"] < 0.05


@pytest.mark.parametrize("make", [DeepSea, OrderedButtons, FlagCar])
def test_a_saved_game_continues_bit_for_bit(make: type) -> None:
    games, generator = make(5), np.random.default_rng(0)
    games.reset(seed=3)
    moves = generator.integers(2, size=(80, 5))
    for move in moves[:30]:
        games.step(move)
    saved = games.get_state()
    straight = [games.step(move)[0] for move in moves[30:]]
    other = make(5)
    other.reset(seed=9)
    other.set_state(saved)
    np.testing.assert_array_equal(straight, [other.step(move)[0] for move in moves[30:]])


@pytest.mark.parametrize("name", ["DeepSea", "OrderedButtons", "FlagCar"])
def test_the_games_are_registered_with_gymnasium(name: str) -> None:
    games = gymnasium.make_vec(f"mimex/{name}-v0", num_envs=3)
    observation, _ = games.reset(seed=0)
    assert games.observation_space.contains(observation)
    with pytest.raises(ValueError, match="need one integer from 0 to"):
        games.step(np.array([0, 1, 7]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DeepSea(size=1), "size is 1, but must be 2 or more"),
        (lambda: OrderedButtons(cells=7), "cells is 7, but must be even"),
        (lambda: OrderedButtons(slack=-1), "slack is -1, but must be 0 or more"),
        (lambda: DeepSea(0), "num_envs is 0, but must be 1 or more"),
    ],
)
def test_invalid_game_settings_raise(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_dense_deep_sea_rewards_every_step_to_the_right_without_cost() -> None:
    sea = DeepSea(2, size=4, dense=True)
    sea.reset(seed=0)
    total = np.zeros(2)
    for _ in range(4):
        actions = rightmost(sea)
        actions[1] = 1 - actions[1]
        total += sea.step(actions)[1]
    np.testing.assert_allclose(total, [1 + 1, 0])


def test_dense_buttons_reward_a_and_each_step_to_the_right() -> None:
    buttons = OrderedButtons(1, cells=4, slack=0, press_cost=0.0, dense=True)
    buttons.reset(seed=0)
    buttons.arrays["cell"][0] = 3
    actions = [RIGHT, PRESS, PRESS, RIGHT, RIGHT, PRESS, LEFT]
    rewards = [buttons.step(np.array([action]))[1][0] for action in actions]
    # A is at 0 and B at 2; pressing A again before B has no reward.
    np.testing.assert_allclose(rewards, [0.01, 0.1, 0, 0.01, 0.01, 1, 0])


def test_a_fraction_of_the_episodes_starts_near_the_goal() -> None:
    sea = DeepSea(4096, size=8, near_starts=0.5)
    sea.reset(seed=0)
    steps = sea.arrays["steps"]
    np.testing.assert_array_equal(steps, sea.arrays["column"])
    assert 1650 < (steps > 0).sum() < 1930  # 4,096 / 2 * 7 / 8 = 1,792 expected
    assert set(steps) == set(range(8))
    for _ in range(
        8
    ):  # moving right from there reaches the treasure, from the last row in one step
        *_, info = sea.step(rightmost(sea))
        assert info["final_info"]["success"][info["_final_info"]].all()
        sea.near_starts = 0.0  # new episodes start at the top

    buttons = OrderedButtons(4096, cells=8, slack=0, near_starts=0.5)
    buttons.reset(seed=0)
    due = buttons.arrays["time_left"] > 0
    assert 1900 < due.sum() < 2200
    np.testing.assert_array_equal(
        buttons.arrays["time_left"][due], 5 - buttons.arrays["cell"][due]
    )  # as if the agent had walked there directly from A: just in time


@pytest.mark.parametrize("game", [DeepSea, OrderedButtons])
@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_an_invalid_fraction_raises_with_its_name(game: type, share: float) -> None:
    with pytest.raises(ValueError, match=r"near_starts is .* fraction from 0 to 1"):
        game(near_starts=share)


def test_the_remaining_time_is_observed_only_on_request() -> None:
    hidden, shown = OrderedButtons(1, cells=8), OrderedButtons(1, cells=8, slack=0, show_time=True)
    assert hidden.single_observation_space.nvec.tolist() == [8, 3]
    assert shown.single_observation_space.nvec.tolist() == [8, 3, 6]
    shown.reset(seed=0)
    shown.arrays["cell"][0] = 0
    seen = [shown.step(np.array([action]))[0][0].tolist() for action in (PRESS, RIGHT, LEFT)]
    assert seen == [[0, 1, 5], [1, 0, 4], [0, 0, 3]]


def test_flag_car_moves_like_mountain_car_and_rewards_the_flag_alone() -> None:
    car, theirs = FlagCar(), gymnasium.make("MountainCar-v0").unwrapped
    seen, _ = car.reset(seed=0)
    theirs.reset(seed=0)
    theirs.state = np.array([car.arrays["position"][0], 0.0])
    total = 0.0
    for _ in range(200):
        action = 2 if seen[0, 1] >= 0 else 0  # push in the direction of travel
        expected, _, over, *_ = theirs.step(action)
        seen, rewards, terminated, truncated, info = car.step(np.array([action]))
        total += rewards[0]
        assert terminated[0] == over
        if over:
            break
        np.testing.assert_allclose(seen[0], expected, rtol=1e-6)
    assert over
    assert (total, truncated[0], info["final_info"]["success"][0]) == (1.0, False, True)


def test_random_actions_do_not_reach_the_flag() -> None:
    cars = FlagCar(256)
    cars.reset(seed=0)
    cars.action_space.seed(0)
    for _ in range(cars.episode_steps):
        _, rewards, _, truncated, _ = cars.step(cars.action_space.sample())
        assert not rewards.any()
    assert truncated.all()
