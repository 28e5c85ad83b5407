import gymnasium
import numpy as np
import pytest

from mimex.envs.experts import expert_for, run
from mimex.envs.experts.kuka_allegro import pitched

TASKS = ("KukaReach", "KukaCabinet", "KukaPick", "KukaMove")
THRESHOLD = 0.95  # of fresh seeds; issue 3 asks for 0.85


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_solves_the_task(task: str) -> None:
    assert run(task, range(6)).all()


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_expert_solves_the_task_for_a_hundred_new_seeds(task: str) -> None:
    assert run(task, range(10_000, 10_100)).mean() >= THRESHOLD


def test_a_lifted_cube_hangs_between_fingers_and_thumb() -> None:
    env = gymnasium.make_vec("mimex/KukaPick-v0", num_envs=4)
    env.reset(seed=1)
    expert = expert_for("KukaPick")(env)
    for _ in range(300):
        actions = expert.act(env)
        assert np.abs(actions).max() <= 1.0
        _, _, terminated, _, info = env.step(actions)
        assert not terminated.any()
    engine = env.unwrapped.engine
    assert info["success"].all()
    # Along the line from the fingertips to the thumb's, the cube is in the middle.
    points = {name: engine.site(name) for name in env.unwrapped.robot.fingers}
    fingers = (points["index_grasp"] + points["middle_grasp"]) / 2
    line = points["thumb_grasp"] - fingers
    along = np.einsum("nk,nk->n", engine.site("cube") - fingers, line)
    share = along / np.einsum("nk,nk->n", line, line)
    np.testing.assert_allclose(share, 0.5, atol=0.15)
    env.close()


def test_the_drawer_is_pulled_by_fingers_behind_the_handle() -> None:
    env = gymnasium.make_vec("mimex/KukaCabinet-v0", num_envs=4)
    env.reset(seed=1)
    expert = expert_for("KukaCabinet")(env)
    engine = env.unwrapped.engine
    closed = engine.site("handle")[:, 0].copy()
    for _ in range(140):
        env.step(expert.act(env))
    assert (engine.site("handle")[:, 0] > closed + 0.05).all()
    behind = engine.site("handle") - engine.site("middle_grasp")
    assert (behind[:, 0] > 0.01).all()
    assert (behind[:, 2] > 0.0).all()  # the tip is lower than the handle's axis
    env.close()


def test_a_pitched_hand_points_its_fingers_down_and_its_palm_at_the_robot() -> None:
    fingers, palm = pitched(-np.pi / 2).apply(np.eye(3)[[0, 2]])
    np.testing.assert_allclose(fingers, (0, 0, -1), atol=1e-12)
    np.testing.assert_allclose(palm, (1, 0, 0), atol=1e-12)
