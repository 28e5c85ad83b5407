import itertools

import gymnasium
import numpy as np
import pytest

from mimex.envs.experts import EXPERTS, demonstrate, run
from mimex.envs.experts.base import Expert
from mimex.envs.settings import TASKS


def test_every_task_has_an_expert() -> None:
    assert set(EXPERTS) == set(TASKS)
    assert all(issubclass(expert, Expert) for expert in EXPERTS.values())


def test_success_of_a_seed_does_not_depend_on_the_other_seeds() -> None:
    together = run("FrankaReach", [3, 1, 4])
    assert together.shape == (3,)
    assert together.dtype == bool
    assert together.tolist() == [bool(run("FrankaReach", [seed])[0]) for seed in (3, 1, 4)]


@pytest.mark.parametrize("task", ["FrankaPick", "KukaMove"])
def test_a_cube_lifted_by_an_expert_is_held(task: str) -> None:
    env = gymnasium.make_vec(f"mimex/{task}-v0", num_envs=4, lift="held")
    env.reset(seed=[0, 1, 2, 3])
    expert, cubes, seen = EXPERTS[task](env), env.unwrapped.world.task, 0
    lying = cubes.cube()[:, 2].copy()
    for _ in range(300):
        info = env.step(expert.act(env))[-1]
        up = cubes.cube()[:, 2] > lying + 0.05
        assert (info["reward/lift_bonus"][up] > 0).all()
        seen += int(up.sum())
    assert seen > 400  # of 1,200 steps


def test_an_expert_that_does_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle(EXPERTS["FrankaPick"]):
        def act(self, env: object) -> np.ndarray:
            return np.zeros((self.num_envs, 9))

    monkeypatch.setitem(EXPERTS, "FrankaPick", Idle)
    assert not run("FrankaPick", [0, 1]).any()


def test_an_unknown_task_raises_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'FrankaStack'.*FrankaPick"):
        run("FrankaStack", [0])


@pytest.mark.render
def test_a_demonstration_yields_changing_images() -> None:
    frames = list(itertools.islice(demonstrate("FrankaReach", seed=0, inset=32), 12))
    assert {(frame.shape[2], frame.dtype.name) for frame in frames} == {(3, "uint8")}
    assert len({frame.shape for frame in frames}) == 1
    assert frames[0].std() > 10  # not blank
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 50
