"""Steps of environments, whatever the agent."""

import gymnasium
import numpy as np
import torch

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.contracts import Step, final_observations, final_successes, truncate


def a_step(episode_steps=None):
    """The first step of three robots, all of whose episodes end with it if they may take one."""
    settings = {} if episode_steps is None else {"episode_steps": episode_steps}
    env = gymnasium.make_vec("mimex/FrankaReach-v0", num_envs=3, **settings)
    first, _ = env.reset(seed=0)
    actions = np.zeros(env.action_space.shape, np.float32)
    return Step(first, actions, *env.step(actions))


SECOND = np.array([False, True, False])


def test_a_truncated_step_has_the_layout_of_one_that_the_environments_truncated():
    ours, theirs = truncate(a_step(), np.ones(3, bool)), a_step(episode_steps=1)
    assert ours.ended.all()
    assert theirs.ended.all()
    np.testing.assert_array_equal(final_observations(ours), final_observations(theirs))
    np.testing.assert_array_equal(final_successes(ours.info), final_successes(theirs.info))
    mine, expected = ours.info["final_info"], theirs.info["final_info"]
    for name in expected.keys() - {"episode_steps"}:
        np.testing.assert_array_equal(mine[name], expected[name], err_msg=name)


def test_only_the_rows_asked_for_are_truncated():
    step = a_step()
    cut = truncate(step, SECOND)
    assert cut.truncated.tolist() == [False, True, False]
    np.testing.assert_array_equal(final_observations(cut), step.next_observation[1:2])
    assert cut.info["final_obs"][0] is None
    assert not step.truncated.any()  # the step itself is as it was
    assert "final_obs" not in step.info


def test_an_episode_that_ended_by_itself_keeps_its_end():
    first = np.array([True, False, False])
    both = truncate(truncate(a_step(), first), SECOND)
    assert both.ended.tolist() == [True, True, False]
    assert final_observations(both).shape[0] == 2
    assert both.info["_final_obs"].tolist() == [True, True, False]


def test_tensors_and_parts_are_truncated_alike():
    observation = {"vector": torch.arange(6.0).view(3, 2)}
    ended = torch.tensor([True, False, False])
    info = {"success": torch.zeros(3)}
    info |= {"final_info": dict(info), "final_obs": {"vector": torch.full((1, 2), 9.0)}}
    step = Step(None, None, observation, torch.zeros(3), ended, torch.zeros(3, dtype=bool), info)
    cut = truncate(step, SECOND)
    assert cut.ended.tolist() == [True, True, False]
    assert final_observations(cut)["vector"].tolist() == [[9.0, 9.0], [2.0, 3.0]]
