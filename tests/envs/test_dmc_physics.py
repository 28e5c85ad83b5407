from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dm_env import specs

from mimex.envs.dmc_physics import action_bounds, load_suite


def test_bounds_are_the_tasks_and_infinite_ones_become_one() -> None:
    low, high = action_bounds(specs.BoundedArray((3,), float, [-2, -np.inf, 0], [3, np.inf, 1]))
    np.testing.assert_equal((low, high), ([-2, -1, 0], [3, 1, 1]))


def test_discrete_actions_raise() -> None:
    with pytest.raises(ValueError, match=r"must be floats.*choose a continuous task"):
        action_bounds(specs.DiscreteArray(4))


def test_a_task_with_a_random_model_has_the_same_model_at_every_load() -> None:
    one, other = load_suite("lqr_lqr_6_2"), load_suite("lqr_lqr_6_2")
    np.testing.assert_equal(one.physics.model.jnt_stiffness, other.physics.model.jnt_stiffness)
    starts = [env.reset().observation["position"] for env in (one, other)]
    assert not np.array_equal(*starts)  # initial states are random without a seed


def test_without_dm_control_the_error_has_the_install_command(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['dm_control'] = None\n"
        "from mimex.cli import main\n"
        "sys.exit(main(['train', 'dmc/cartpole_balance', '--out', sys.argv[1]]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 1
    assert "pip install 'mimex[dmc]'" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
