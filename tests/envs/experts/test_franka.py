import gymnasium
import numpy as np
import pytest

from mimex.envs.experts import expert_for, run

TASKS = ("FrankaReach", "FrankaCabinet", "FrankaPick", "FrankaMove")
THRESHOLD = 0.95  # of fresh seeds


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_solves_the_task(task: str) -> None:
    assert run(task, range(8)).all()


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_expert_solves_the_task_for_a_hundred_new_seeds(task: str) -> None:
    assert run(task, range(10_000, 10_100)).mean() >= THRESHOLD


def test_a_seed_gives_the_same_start_as_in_the_single_environment() -> None:
    single = gymnasium.make("mimex/FrankaPick-v0")
    vector = gymnasium.make_vec("mimex/FrankaPick-v0", num_envs=3)
    starts, _ = vector.reset(seed=[5, 9, 2])
    for row, seed in enumerate((5, 9, 2)):
        np.testing.assert_array_equal(single.reset(seed=seed)[0], starts[row])
    single.close()
    vector.close()


def test_the_cube_is_held_between_the_fingers_when_lifted() -> None:
    env = gymnasium.make_vec("mimex/FrankaPick-v0", num_envs=4)
    env.reset(seed=1)
    expert = expert_for("FrankaPick")(env)
    for _ in range(260):
        _, _, terminated, _, info = env.step(expert.act(env))
        assert not terminated.any()
    engine = env.unwrapped.engine
    fingers = np.stack([engine.site(name) for name in env.unwrapped.robot.fingers])
    assert info["success"].all()
    assert np.linalg.norm(fingers.mean(axis=0) - engine.site("cube"), axis=1).max() < 0.02
    # The fingers are one edge of the cube apart, although their targets are closer.
    gap = np.linalg.norm(fingers[0] - fingers[1], axis=1)
    np.testing.assert_allclose(gap, 0.045, atol=0.002)
    env.close()
