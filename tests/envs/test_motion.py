"""The small games of motion: rules by hand and against Gymnasium's, and saving."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import mimex.envs  # noqa: F401
from mimex.envs.motion import FlagCar, PointMaze


def test_the_car_moves_as_gymnasiums_and_is_paid_at_the_flag_alone() -> None:
    car, theirs = FlagCar(), gymnasium.make("MountainCar-v0").unwrapped
    seen, _ = car.reset(seed=0)
    theirs.reset(seed=0)
    theirs.state = np.array([car.arrays["position"][0], 0.0])
    total = 0.0
    for _ in range(200):
        action = 2 if seen[0, 1] >= 0 else 0  # with the swing
        expected, _, over, *_ = theirs.step(action)
        seen, rewards, terminated, truncated, info = car.step(np.array([action]))
        total += rewards[0]
        assert terminated[0] == over
        if over:
            break
        np.testing.assert_allclose(seen[0], expected, rtol=1e-6)
    assert over
    assert (total, truncated[0], info["final_info"]["success"][0]) == (1.0, False, True)


def test_walls_stop_a_point_across_and_not_along() -> None:
    maze = PointMaze(speed=0.5)
    maze.reset(seed=0)
    maze.arrays["place"][:] = [1.5, 4.6]
    maze.step(np.array([[-1.0, 0.4]]))  # into the upper wall, and along it
    np.testing.assert_allclose(maze.arrays["place"], [[1.0, 4.8]])
    maze.step(np.array([[-9.0, 0.0]]))  # brought to -1: 0.5 up would be inside the wall
    np.testing.assert_allclose(maze.arrays["place"], [[1.0, 4.8]])


def test_the_way_through_the_maze_pays_once_and_ends() -> None:
    maze = PointMaze(2)
    maze.reset(seed=0)
    way = [[1.5, 5.5], [3.5, 5.5], [3.5, 1.5], [5.5, 1.5], [5.5, 5.5]]
    for _ in range(maze.episode_steps):
        place = maze.arrays["place"][0]
        if np.abs(way[0] - place).max() < 0.05:
            way.pop(0)
        action = np.clip((way[0] - place) / maze.speed, -1, 1)
        _, rewards, terminated, _, info = maze.step(np.stack([action, 0 * action]))
        steps = maze.arrays["steps"][1]
        if terminated.any():
            break
    assert 60 < steps < 100
    np.testing.assert_array_equal(rewards, [1.0, 0.0])
    np.testing.assert_array_equal(terminated, [True, False])
    assert info["final_info"]["success"][0]


def test_a_dense_maze_pays_for_the_way_and_takes_it_back() -> None:
    maze = PointMaze(5, dense=True)
    maze.reset(seed=0)
    # On, back, to the end; and in a corner, towards its exit and away from where it was entered.
    maze.arrays["place"][:] = [[1.5, 1.9], [1.5, 2.1], [5.5, 4.9], [1.6, 5.5], [1.5, 5.2]]
    moves = [[0.0, 1.0], [0.0, -1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    _, rewards, *_ = maze.step(np.array(moves))
    way = np.array([0.25, -0.25, 0.25, 0.25, 0.25])  # of 16 cells; the last: 0.3 to the middle
    np.testing.assert_allclose(rewards, way / 16 + [0, 0, 1, 0, 0])
    _, rewards, *_ = maze.step(np.zeros((5, 2)))
    np.testing.assert_array_equal(rewards, 0.0)


def test_a_dense_maze_pays_as_much_by_any_way_through_it() -> None:
    maze = PointMaze(1, dense=True, episode_steps=2_000)
    maze.reset(seed=0)
    maze.action_space.seed(0)
    left, paid = maze._way_left(), 0.0
    for _ in range(1_000):
        paid += maze.step(maze.action_space.sample())[1][0]
    np.testing.assert_allclose(paid, left - maze._way_left())


@pytest.mark.parametrize("make", [PointMaze, FlagCar])
def test_chance_does_not_find_the_end(make: type) -> None:
    games = make(256)
    games.reset(seed=0)
    games.action_space.seed(0)
    for _ in range(games.episode_steps):
        _, rewards, _, truncated, _ = games.step(games.action_space.sample())
        assert not rewards.any()
    assert truncated.all()


@pytest.mark.parametrize("make", [PointMaze, FlagCar])
def test_a_saved_game_of_motion_continues_bit_for_bit(make: type) -> None:
    games, again = make(3, episode_steps=20), make(3, episode_steps=20)
    games.reset(seed=1)
    games.action_space.seed(0)
    moves = [games.action_space.sample() for _ in range(50)]
    for move in moves[:25]:
        games.step(move)
    again.set_state(games.get_state())
    for move in moves[25:]:
        np.testing.assert_array_equal(games.step(move)[0], again.step(move)[0])


def test_actions_that_are_none_are_refused_by_name() -> None:
    maze = gymnasium.make_vec("mimex/PointMaze-v0", 2)
    maze.reset(seed=0)
    for wrong in (np.zeros(2), np.full((2, 2), np.nan)):
        with pytest.raises(ValueError, match=r"2 environment.*rows of \(2,\) numbers"):
            maze.step(wrong)
    with pytest.raises(ValueError, match="speed is 2"):
        PointMaze(speed=2)
