from typing import Any

import gymnasium
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from mimex.envs.experts.base import Aim, Expert, Leg, site
from mimex.envs.robots.franka import FRANKA

FAR, NEAR = np.array([0.5, 0.0, 0.6]), np.array([0.6, 0.1, 0.7])


def at(point: np.ndarray) -> Any:
    return lambda env: Aim(np.tile(point, (env.num_envs, 1)), Rotation.identity(), 0.0)


class TwoPoints(Expert):
    plan = (Leg(at(FAR), (0.04, 0.04), near=0.01), Leg(at(NEAR), (0.0, 0.0)))
    body, offset = "panda_hand", (0.0, 0.0, 0.1034)
    posture = FRANKA.home[:7]


@pytest.fixture
def env() -> Any:
    env = gymnasium.make_vec("mimex/FrankaReach-v0", num_envs=3)
    env.reset(seed=0)
    yield env
    env.close()


def hand_points(env: Any) -> np.ndarray:
    return np.mean([site(env.unwrapped, name) for name in FRANKA.fingers], axis=0)


def test_legs_are_followed_in_order(env: Any) -> None:
    expert = TwoPoints(env)
    closest = np.full(3, np.inf)
    for _ in range(150):
        env.step(expert.act(env))
        closest = np.minimum(closest, np.linalg.norm(hand_points(env) - FAR, axis=1))
    assert (closest < 0.011).all()
    assert (expert.leg == 1).all()
    np.testing.assert_allclose(hand_points(env), np.tile(NEAR, (3, 1)), atol=0.01)
    np.testing.assert_allclose(env.unwrapped.targets[:, 7:], 0.0, atol=1e-9)


def test_actions_stay_within_one(env: Any) -> None:
    expert = TwoPoints(env)
    for _ in range(60):
        actions = expert.act(env)
        assert actions.shape == (3, 9)
        assert np.abs(actions).max() <= 1.0
        env.step(actions)


def test_legs_last_between_their_minimum_and_maximum_time(env: Any) -> None:
    class Waiting(TwoPoints):
        unreachable = np.array([5.0, 0.0, 0.0])
        plan = (
            Leg(at(FAR), (0.04, 0.04), near=9.0, at_least=20),
            Leg(at(unreachable), (0.04, 0.04), at_most=15),
            Leg(at(NEAR), (0.0, 0.0)),
        )

    expert = Waiting(env)
    seen = []
    for _ in range(40):
        env.step(expert.act(env))
        seen.append(int(expert.leg[0]))
    assert seen.index(1) == 19  # the 20th call ends the first leg
    assert seen.index(2) == 34


def test_reset_restarts_the_plan_of_the_given_environments(env: Any) -> None:
    expert = TwoPoints(env)
    expert.leg[:] = 1
    expert.reset(np.array([False, True, False]))
    assert expert.leg.tolist() == [1, 0, 1]


def test_step_counts_mean_the_same_time_at_another_control_rate() -> None:
    env = gymnasium.make_vec("mimex/FrankaReach-v0", num_envs=1, control_hz=30.0)
    env.reset(seed=0)

    class Waiting(TwoPoints):
        plan = (
            Leg(at(FAR), (0.04, 0.04), near=9.0, at_least=20),
            Leg(at(NEAR), (0.0, 0.0)),
        )

    expert = Waiting(env)
    for _ in range(9):
        env.step(expert.act(env))
    assert expert.leg[0] == 0
    env.step(expert.act(env))
    assert expert.leg[0] == 1
    env.close()
