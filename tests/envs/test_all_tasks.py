"""Properties of every task with every reward."""

from __future__ import annotations

import json
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from mimex.envs.manipulation import VectorManipulation
from mimex.envs.reward import SHAPINGS
from mimex.envs.settings import TASKS
from mimex.envs.single import Manipulation

ORACLE_SIZE = {
    "FrankaReach": 27,
    "FrankaCabinet": 34,
    "FrankaPick": 34,
    "FrankaMove": 39,
    "KukaReach": 55,
    "KukaCabinet": 77,
    "KukaPick": 77,
    "KukaMove": 82,
}
# Half-width of the published ranges (m), by the body that is placed.
RANGES = {
    "Reach": {"goal": (0.2, 0.3, 0.2)},
    "Cabinet": {"cabinet": (0.075, 0.075, 0.05)},
    "Pick": {"cube": (0.1, 0.2, 0.0)},
    "Move": {"cube": (0.1, 0.2, 0.0), "goal": (0.1, 0.2, 0.1)},
}
CENTERS = {
    "FrankaReach": {"goal": (0.55, 0.0, 0.7)},
    "KukaReach": {"goal": (0.45, 0.0, 0.65)},
    "FrankaCabinet": {"cabinet": (0.05, 0.0, 0.45)},
    "KukaCabinet": {"cabinet": (0.05, 0.0, 0.45)},
    "FrankaPick": {"cube": (0.5, 0.0, 0.4225)},
    "KukaPick": {"cube": (0.5, 0.0, 0.43)},
    "FrankaMove": {"cube": (0.5, 0.0, 0.4225), "goal": (0.5, 0.0, 0.7)},
    "KukaMove": {"cube": (0.5, 0.0, 0.43), "goal": (0.5, 0.0, 0.7)},
}

every_task = pytest.mark.parametrize("task", TASKS)
every_reward = pytest.mark.parametrize("reward", SHAPINGS)


def actions_for(env: VectorManipulation, steps: int, scale: float = 1.0) -> np.ndarray:
    """Normal actions (steps, N, joints), the same for environment i whatever N is."""
    joints = len(env.robot.joints)
    each = [np.random.default_rng(i).normal(size=(steps, joints)) for i in range(env.num_envs)]
    return scale * np.stack(each, axis=1)


def assert_same(a: object, b: object) -> None:
    np.testing.assert_equal(a, b)


@every_task
@every_reward
def test_gymnasium_and_sb3_accept_it(task: str, reward: str) -> None:
    env = gymnasium.make(f"mimex/{task}-v0", reward=reward).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the state has no bounds, which both mention
        check_env(env, skip_render_check=True)
        sb3_check_env(env)


@every_task
@every_reward
def test_reward_is_the_weighted_sum_of_the_terms_in_info(task: str, reward: str) -> None:
    env = VectorManipulation(task, 3, reward=reward, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    for action in actions_for(env, 5):
        _, rewards, _, _, info = env.step(action)
    assert {key for key in info if key.startswith("reward/")} == {
        f"reward/{term}" for term in env.weights
    }
    expected = sum(weight * info[f"reward/{term}"] for term, weight in env.weights.items())
    np.testing.assert_allclose(rewards, expected, rtol=1e-12)
    np.testing.assert_allclose(
        info["reward/action_penalty"], -np.square(action.clip(-1, 1)).sum(axis=1)
    )
    assert info["_reward/action_penalty"].all()


@every_task
def test_spaces_have_the_published_sizes(task: str) -> None:
    joints = 9 if task.startswith("Franka") else 23
    env = VectorManipulation(task, 2)
    assert env.single_action_space.shape == (joints,)
    assert env.single_observation_space.shape == (ORACLE_SIZE[task],)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    robot_only = VectorManipulation(task, 2, observation="robot")
    robot, _ = robot_only.reset(seed=0)
    assert robot.shape == (2, 2 * joints)
    assert_same(robot, observation[:, : 2 * joints])


@every_task
def test_resets_sample_exactly_the_published_ranges(task: str) -> None:
    env = VectorManipulation(task, 300)
    env.reset(seed=0)
    joint_columns, _ = env.engine.joint_columns(env.robot.joints)
    pose = env.engine.qpos[:, joint_columns]
    low, high = env.world.joints.low, env.world.joints.high
    assert (np.abs(pose - np.clip(env.robot.home, low, high)) <= 0.125 + 1e-12).all()
    assert (pose >= low).all()
    assert (pose <= high).all()
    assert_same(pose, env.targets)
    assert not env.engine.qvel.any()
    for body, half_width in RANGES[task.removeprefix(env.robot.name)].items():
        if body == "cube":
            place = env.engine.qpos[:, env.engine.joint_columns(["cube"])[0]][:, :3]
        else:
            place = env.engine.mocap(body)
        offset = place - CENTERS[task][body]
        assert (np.abs(offset) <= np.array(half_width) + 1e-12).all()
        # Of 300 uniform draws, at least one comes within 5 % of either end (missed once in 2e6).
        assert (offset.max(axis=0) >= 0.9 * np.array(half_width) - 1e-12).all()
        assert (offset.min(axis=0) <= -0.9 * np.array(half_width) + 1e-12).all()


@every_task
def test_a_start_is_at_rest(task: str) -> None:
    env = VectorManipulation(task, 8, threads=1)
    env.reset(seed=3)
    before = env.engine.state()
    for _ in range(30):
        _, _, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape))
        assert not (terminated | truncated).any()
    positions = env.engine.qpos.shape[1]
    moved = np.abs(env.engine.state()[:, 1 : 1 + positions] - before[:, 1 : 1 + positions])
    assert moved.max() < 0.01


@every_task
def test_a_seed_determines_everything(task: str) -> None:
    env = VectorManipulation(task, 3)
    first, _ = env.reset(seed=5)
    again, _ = env.reset(seed=5)
    other, _ = env.reset(seed=6)
    assert_same(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[1])
    after, _ = env.reset()
    assert not np.array_equal(other, after)


@every_task
def test_an_environment_does_not_depend_on_other_environments_or_threads(task: str) -> None:
    many = VectorManipulation(task, 17, threads=2, episode_steps=25)
    few = VectorManipulation(task, 2, threads=1, episode_steps=25)
    assert_same(many.reset(seed=1)[0][:2], few.reset(seed=1)[0])
    for all_actions in actions_for(many, 40):
        observation, rewards, terminated, truncated, info = many.step(all_actions)
        few_observation, few_rewards, few_terminated, few_truncated, few_info = few.step(
            all_actions[:2]
        )
        assert_same(observation[:2], few_observation)
        assert_same(rewards[:2], few_rewards)
        assert_same(terminated[:2], few_terminated)
        assert_same(truncated[:2], few_truncated)
        for key in ("success", "reward/goal_distance", "unstable_episodes"):
            assert_same(info[key][:2], few_info[key])


@every_task
def test_the_single_environment_equals_the_first_of_a_vector(task: str) -> None:
    vector = VectorManipulation(task, 2)
    single = Manipulation(task)
    assert_same(vector.reset(seed=4)[0][0], single.reset(seed=4)[0])
    # A list of seeds gives each environment the episodes of a single environment with its seed.
    assert_same(vector.reset(seed=[9, 4])[0][1], single.reset(seed=4)[0])
    for action in actions_for(vector, 10, 0.5):
        observation, rewards, *_ = vector.step(action[::-1])
        alone, reward, terminated, truncated, info = single.step(action[0])
        assert_same(observation[1], alone)
        assert rewards[1] == reward
    assert isinstance(terminated, bool)
    assert isinstance(truncated, bool)
    assert isinstance(info["success"], bool)
    assert isinstance(info["reward/action_penalty"], float)


@every_task
def test_the_end_of_an_episode_is_reported_completely(task: str) -> None:
    resets = VectorManipulation(task, 6, episode_steps=12)
    runs_on = VectorManipulation(task, 6, episode_steps=12, autoreset_mode=AutoresetMode.DISABLED)
    resets.reset(seed=2)
    runs_on.reset(seed=2)
    for step, action in enumerate(actions_for(resets, 12, 0.3)):
        observation, rewards, terminated, truncated, info = resets.step(action)
        last_observation, last_rewards, last_terminated, last_truncated, last_info = runs_on.step(
            action
        )
        assert not terminated.any()
        assert_same(truncated, np.full(6, step == 11))
    assert_same((rewards, terminated, truncated), (last_rewards, last_terminated, last_truncated))
    assert info["_final_obs"].all()
    assert info["_final_info"].all()
    assert_same(np.stack(list(info["final_obs"])), last_observation)
    assert_same(info["final_info"], last_info)
    assert not info["_success"].any()
    assert_same(observation, resets.observe())
    assert not np.array_equal(observation, last_observation)


@every_task
def test_every_termination_has_a_reason(task: str) -> None:
    env = VectorManipulation(task, 32, episode_steps=60)
    env.reset(seed=0)
    ends = 0
    for action in actions_for(env, 90, 3.0):
        _, _, terminated, truncated, info = env.step(action)
        assert not (terminated & truncated).any()
        if "final_info" in info:
            final = info["final_info"]
            reason = final["arm_touched"] | final["object_fallen"] | final["unstable"]
            assert_same(reason, terminated)
            ends += terminated.sum()
    assert env.get_state()["unstable_episodes"].sum() == 0
    if "Cabinet" not in task:
        assert ends > 0  # such actions drive some arm into the table


@every_task
def test_a_restored_environment_continues_bit_for_bit(task: str) -> None:
    env = VectorManipulation(task, 4, episode_steps=20)
    env.reset(seed=7)
    actions = actions_for(env, 60)
    for action in actions[:30]:
        env.step(action)
    state = env.get_state()
    arrays = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
    rest = {key: value for key, value in state.items() if key not in arrays}
    twin = VectorManipulation(task, 4, episode_steps=20, threads=2)
    twin.set_state(arrays | json.loads(json.dumps(rest)))
    assert_same(env.observe(), twin.observe())
    for action in actions[30:]:
        *steps, info = env.step(action)
        *twin_steps, twin_info = twin.step(action)
        assert_same(steps, twin_steps)
        assert_same(list(info.pop("final_obs", ())), list(twin_info.pop("final_obs", ())))
        assert_same(info, twin_info)


@pytest.mark.parametrize("task", TASKS)
def test_named_observation_groups_cover_all_features(task: str) -> None:
    env = VectorManipulation(task, 2)
    observation, _ = env.reset(seed=0)
    groups = env.observation_groups
    spans = [*groups.values()]
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
    assert spans[-1][1] == observation.shape[1]
    joints = len(env.robot.joints)
    assert groups["joints"] == (0, joints)
    assert groups["velocities"] == (joints, 2 * joints)
    if "object" in groups:
        start, stop = groups["object"]
        site = "handle" if "Cabinet" in task else "cube"
        expected = (
            env.engine.site("handle")
            if site == "handle"
            else env.engine.qpos[:, env.engine.joint_columns(["cube"])[0]][:, :3]
        )
        np.testing.assert_allclose(observation[:, start:stop], expected, atol=1e-6)
    else:
        assert {"hand", "goal", "hand_to_goal"} <= set(groups)
