from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dm_env import specs

from mimex.envs.dmc_physics import action_bounds, load_suite


def test_bounds_are_the_tasks_own_and_unlimited_actions_are_taken_as_they_are() -> None:
    low, high = action_bounds(specs.BoundedArray((3,), float, [-2, -np.inf, 0], [3, np.inf, 1]))
    np.testing.assert_equal((low, high), ([-2, -1, 0], [3, 1, 1]))


def test_discrete_actions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be floats.*choose a continuous task"):
        action_bounds(specs.DiscreteArray(4))


def test_a_task_that_draws_its_model_draws_the_same_one_each_time() -> None:
    one, other = load_suite("lqr_lqr_6_2"), load_suite("lqr_lqr_6_2")
    np.testing.assert_equal(one.physics.model.jnt_stiffness, other.physics.model.jnt_stiffness)
    starts = [env.reset().observation["position"] for env in (one, other)]
    assert not np.array_equal(*starts)  # episodes are random until a seed comes


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
