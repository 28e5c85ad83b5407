"""How the tasks become known to Gymnasium."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import pytest
from gymnasium.vector import AutoresetMode

from mimex.envs.manipulation import VectorManipulation
from mimex.envs.register import register_all
from mimex.envs.single import Manipulation


def test_registering_needs_no_mujoco_and_no_torch() -> None:
    code = (
        "import sys, gymnasium, mimex.envs; "
        "assert {'mimex/KukaMove-v0', 'dmc/humanoid_CMU_run'} <= set(gymnasium.registry); "
        "assert not {'dm_control', 'mujoco', 'torch', 'OpenGL'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_registering_twice_changes_nothing() -> None:
    register_all()
    before = dict(gymnasium.registry)
    register_all()
    assert gymnasium.registry == before
    assert sum(name.startswith("mimex/") and name.endswith("-v0") for name in before) >= 8


def test_make_and_make_vec_give_both_faces() -> None:
    assert isinstance(gymnasium.make("mimex/FrankaReach-v0").unwrapped, Manipulation)
    vector = gymnasium.make_vec("mimex/FrankaReach-v0", num_envs=3, reward="dense", threads=1)
    assert isinstance(vector, VectorManipulation)
    assert vector.num_envs == 3
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    with pytest.raises(ValueError, match="did you mean 'reward'"):
        gymnasium.make("mimex/FrankaReach-v0", rewards="dense")
