import math
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import ClipAction, RecordEpisodeStatistics, RescaleAction
from gymnasium.wrappers import vector as of_vectors
from tests.probe import EPISODE_LENGTHS, NotingBonus, ProbeEnv, signature

from mimex import ICM, RND, BonusScale, MIMEx
from mimex.bonus.scale import BETA
from mimex.interop.vector import wrap, wrap_vector
from mimex.train import checkpoint

MODES = list(AutoresetMode)


def roll(mode, steps=40, num_envs=2, **options):
    """Steps ProbeEnvs with a NotingBonus; returns the bonus and one row per step.

    A row is ``(env, episode, step, reward, whether the step only resets)``."""
    vector = SyncVectorEnv([lambda n=n: ProbeEnv(n) for n in range(num_envs)], autoreset_mode=mode)
    bonus = NotingBonus(3)
    env = wrap_vector(
        vector, bonus, beta=BonusScale(1.0, normalize=False), learn_every=None, **options
    )
    generator = np.random.default_rng(0)
    observations, _ = env.reset(seed=0)
    rows, over = [], np.zeros(num_envs, bool)
    for _ in range(steps):
        if mode is AutoresetMode.DISABLED and over.any():
            observations, _ = env.reset(options={"reset_mask": over})
        before, was_over = observations.copy(), over
        observations, rewards, terminated, truncated, info = env.step(generator.integers(3, size=2))
        over = terminated | truncated
        np.testing.assert_allclose(
            rewards, info["reward_extrinsic"] + info["reward_intrinsic"], rtol=1e-6
        )
        for n in range(num_envs):
            reset_only = mode is AutoresetMode.NEXT_STEP and was_over[n]
            rows.append((*before[n, :3], rewards[n], reset_only))
    return bonus, np.array(rows)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ends_at", ["next", "observation"])
def test_each_transition_has_the_bonus_of_its_window(mode, ends_at):
    _, rows = roll(mode, ends_at=ends_at)
    env, episode, step, reward, reset_only = torch.tensor(rows).T
    arrived = step + 1 if ends_at == "next" else step
    expected = signature(episode, arrived, env) * (1 - reset_only)
    torch.testing.assert_close(reward, expected, rtol=1e-5, atol=1e-5)
    finals = step + 1 == torch.tensor(EPISODE_LENGTHS)[episode.long() % len(EPISODE_LENGTHS)]
    assert (finals & (reset_only == 0)).sum() >= 10  # ends of episodes were among them


@pytest.mark.parametrize("mode", MODES)
def test_windows_stay_within_an_episode_and_hold_previous_actions(mode):
    bonus, _ = roll(mode)
    assert sum(map(len, bonus.windows)) >= 60
    for window in bonus.windows:
        for features, valid, actions in zip(
            window.features, window.valid, window.actions, strict=True
        ):
            steps = features[valid]
            assert len({tuple(row[:2].tolist()) for row in steps}) == 1
            assert steps[:, 2].diff().tolist() == [1.0] * (len(steps) - 1)
            assert len(steps) == min(int(steps[-1, 2]) + 1, 5)  # of full length
            assert torch.equal(actions[valid], steps[:, 3:])


def test_an_asynchronous_environment_has_the_same_rewards():
    functions = [lambda: ProbeEnv(0), lambda: ProbeEnv(1)]
    totals = []
    for kind in (SyncVectorEnv, AsyncVectorEnv):
        env = wrap_vector(kind(functions), NotingBonus(3), beta=0.5)
        env.reset(seed=0)
        totals.append([env.step(np.array([1, 2]))[1].tolist() for _ in range(12)])
        env.close()
    assert totals[0] == totals[1]


def test_a_masked_reset_does_not_change_the_windows_of_other_environments():
    vector = SyncVectorEnv([ProbeEnv, ProbeEnv], autoreset_mode=AutoresetMode.DISABLED)
    bonus = NotingBonus(3)
    env = wrap_vector(vector, bonus)
    env.reset()
    env.step(np.array([0, 0]))
    env.reset(options={"reset_mask": np.array([True, False])})
    env.step(np.array([1, 1]))
    assert bonus.windows[-1].valid.sum(1).tolist() == [2, 3]
    assert bonus.windows[-1].features[:, -2, 2].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(("settings", "trained"), [({}, 5), ({"train_fraction": 1.0}, 20)])
def test_the_bonus_learns_once_from_a_quarter_of_the_transitions_or_all(settings, trained):
    envs = gymnasium.make_vec("Acrobot-v1", 4, vectorization_mode="sync")
    env = wrap_vector(envs, RND(), learn_every=20, **settings)
    env.reset(seed=0)
    for _ in range(13):  # 52 transitions: after 20 and 40
        env.step(env.action_space.sample())
    assert env.stream.bonus.steps == 2
    assert env.stream.metrics["bonus/trained"] == trained


def test_constructing_the_wrapper_does_not_reset_the_environment():
    class Untouchable(ProbeEnv):
        def reset(self, **kwargs):
            raise AssertionError("reset in the constructor")

    env = wrap_vector(SyncVectorEnv([Untouchable]), MIMEx())
    with pytest.raises(RuntimeError, match=r"step\(\) before reset\(\)"):
        env.stream.step([0], np.zeros((1, 6)), [0.0], [False])


def test_the_default_scale_does_not_depend_on_the_size_of_the_bonus():
    for size in (1e-6, 1.0, 1e6):
        vector = SyncVectorEnv([lambda: ProbeEnv(0), lambda: ProbeEnv(1)])
        value = torch.tensor([1.0, 3.0]) * size
        env = wrap_vector(vector, NotingBonus(3, lambda w, value=value: value))
        env.reset()
        for _ in range(3):
            rewards = env.step(np.array([0, 0]))[1]
            # Bonuses in units of their rms, which is sqrt(5) times their size.
            unit = BETA * math.sqrt((1 - 0.99**2) / 5)
            np.testing.assert_allclose(rewards, unit * np.array([1.0, 3.0]), rtol=1e-6)


@pytest.mark.parametrize("make_bonus", [MIMEx, lambda: ICM(None, 2, discrete=True)])
def test_a_loaded_state_continues_with_the_same_rewards(make_bonus, tmp_path):
    def fresh():
        vector = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync")
        return wrap_vector(vector, make_bonus(), beta=BonusScale(0.1), learn_every=8)

    actions = np.random.default_rng(0).integers(2, size=(40, 3))
    env = fresh()
    env.reset(seed=0)
    for row in actions[:25]:
        env.step(row)
    state = env.state_dict()
    checkpoint.save(tmp_path / "bonus.safetensors", state)
    other = fresh()
    other.env.reset(seed=0)
    for row in actions[:25]:
        other.env.step(row)
    other.load_state_dict(state)
    again = [other.step(row)[1] for row in actions[25:]]
    expected = [env.step(row)[1] for row in actions[25:]]
    np.testing.assert_array_equal(again, expected)
    from_file = fresh()
    from_file.load_state_dict(checkpoint.load(tmp_path / "bonus.safetensors"))
    assert from_file.stream.transitions == state["stream"]["transitions"]


def test_a_state_is_saved_by_torch_and_loaded_as_weights_only(tmp_path):
    def fresh():
        return wrap_vector(SyncVectorEnv([lambda: ProbeEnv(0), lambda: ProbeEnv(1)]), MIMEx())

    env, other = fresh(), fresh()
    env.reset(seed=0)
    for _ in range(EPISODE_LENGTHS[0]):  # the last of them ends an episode
        env.step(np.zeros(2, int))
    torch.save(env.state_dict(), tmp_path / "bonus.pt")
    other.load_state_dict(torch.load(tmp_path / "bonus.pt", weights_only=True))
    assert other._ended.tolist() == env._ended.tolist() != [False, False]
    assert other.stream.transitions == env.stream.transitions > 0


def test_mismatched_arguments_raise():
    vector = SyncVectorEnv([ProbeEnv])
    with pytest.raises(ValueError, match=r"action_dim=2.*action_dim=3"):
        wrap_vector(vector, ICM(None, 2, discrete=True))
    with pytest.raises(ValueError, match=r"give encoder=... to the wrapper"):
        wrap_vector(vector, MIMEx(encoder=lambda x: x))
    with pytest.raises(ValueError, match="ends_at='last'"):
        wrap_vector(vector, MIMEx(), ends_at="last")
    with pytest.raises(ValueError, match="learn_every=0"):
        wrap_vector(vector, MIMEx(), learn_every=0)
    vector.metadata = {}
    with pytest.raises(ValueError, match="no metadata\\['autoreset_mode'\\]"):
        wrap_vector(vector, MIMEx())


def test_a_same_step_environment_without_final_obs_raises():
    vector = SyncVectorEnv([ProbeEnv])  # really NEXT_STEP
    env = wrap_vector(vector, NotingBonus(3), autoreset_mode=AutoresetMode.SAME_STEP)
    env.reset()
    for _ in range(EPISODE_LENGTHS[0] - 1):
        env.step(np.array([0]))
    with pytest.raises(ValueError, match="no 'final_obs'"):
        env.step(np.array([0]))


def test_dict_observations_are_flattened_or_chosen_by_key():
    class DictProbe(gymnasium.Wrapper):
        def __init__(self):
            super().__init__(ProbeEnv())
            self.observation_space = gymnasium.spaces.Dict(
                {"all": self.env.observation_space, "flag": gymnasium.spaces.Discrete(2)}
            )

        def reset(self, **kwargs):
            observation, info = self.env.reset(**kwargs)
            return {"all": observation, "flag": 1}, info

        def step(self, action):
            observation, *rest = self.env.step(action)
            return {"all": observation, "flag": 1}, *rest

    for key, width in ((None, 8), ("all", 6)):
        vector = SyncVectorEnv([DictProbe], autoreset_mode=AutoresetMode.SAME_STEP)
        bonus = NotingBonus(3)
        env = wrap_vector(vector, bonus, view=key)
        env.reset()
        for _ in range(8):  # over an episode's end, whose final observation is a dict, too
            env.step(np.array([0]))
        assert all(window.features.shape == (1, 5, width) for window in bonus.windows)
        last = bonus.windows[EPISODE_LENGTHS[0] - 1]
        assert last.features[0, :, 2].tolist() == [2.0, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("view", "expected"), [(2, [2]), ([0, -4], [0, 2]), (slice(1, 3), [1, 2]), (None, range(6))]
)
def test_a_bonus_sees_the_features_of_its_view(mode, view, expected):
    whole, _ = roll(mode)
    part, _ = roll(mode, view=view)
    assert len(part.windows) == len(whole.windows) > 20
    for one, other in zip(part.windows, whole.windows, strict=True):
        assert torch.equal(one.features, other.features[:, :, list(expected)])
        assert torch.equal(one.actions, other.actions)


@pytest.mark.parametrize("view", [6, [0, 7], -7, slice(0, 9), slice(3, 3), [], "a", [True], 1.5])
def test_a_view_out_of_range_raises_with_the_valid_range(view):
    with pytest.raises(ValueError, match=r"view=.* has 6 features, 0 to 5"):
        wrap(ProbeEnv(), MIMEx(), view=view)


def test_a_view_of_an_unsupported_space_raises():
    class Code(ProbeEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = gymnasium.spaces.Discrete(5)

    with pytest.raises(ValueError, match=r"view=0 takes keys.*Discrete\(5\): leave view out"):
        wrap(Code(), RND(), view=0)


class Mixed(gymnasium.Env):
    """Dict, MultiDiscrete and Tuple observations and actions, with episodes of three steps."""

    observation_space = gymnasium.spaces.Dict(
        {
            "codes": gymnasium.spaces.MultiDiscrete([2, 3]),
            "nested": gymnasium.spaces.Dict({"x": gymnasium.spaces.Box(-1, 1, (2,))}),
        }
    )

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert action in self.action_space
        self.t += 1
        return self.observation_space.sample(), 0.0, self.t == 3, False, {}


CODE, PAIR = gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(0, 1, (2,))
ACTIONS = [
    (gymnasium.spaces.MultiDiscrete([2, 3]), 5),
    (gymnasium.spaces.Dict({"a": CODE, "b": PAIR}), 4),
    (gymnasium.spaces.Tuple([CODE, gymnasium.spaces.MultiBinary(2)]), 4),
]


@pytest.mark.parametrize(("space", "width"), ACTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_composite_actions_and_observations_are_flattened(space, width, mode):
    bonus = ICM()
    env = wrap_vector(
        SyncVectorEnv([lambda: Mixed(space)] * 2, autoreset_mode=mode), bonus, learn_every=6
    )
    env.reset(seed=0)
    for _ in range(9):
        _, rewards, terminated, *_ = env.step(env.action_space.sample())
        if mode is AutoresetMode.DISABLED and terminated.any():
            env.reset(options={"reset_mask": terminated})
    assert np.isfinite(rewards).all()
    assert (bonus.feature_dim, bonus.action_dim) == (7, width)
    assert bonus.steps >= 2
    single = ICM()
    one = wrap(Mixed(space), single, learn_every=3, view="codes")
    one.reset(seed=0)
    for _ in range(3):
        reward = one.step(one.action_space.sample())[1]
    assert np.isfinite(reward)
    assert (single.feature_dim, single.action_dim, single.steps) == (5, width, 1)


def test_unsupported_action_spaces_raise_only_if_the_bonus_uses_actions():
    space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))
    wrap(Mixed(space), RND())
    with pytest.raises(ValueError, match=r"action space Sequence.*TransformAction.*RND"):
        wrap(Mixed(space), ICM())
    assert hasattr(gymnasium.wrappers, "TransformAction")


def test_a_robot_task_of_this_project_can_be_wrapped():
    pytest.importorskip("mujoco")
    import mimex.envs  # noqa: F401 (registers the task)

    vector = gymnasium.make_vec("mimex/FrankaReach-v0", num_envs=2)
    env = wrap_vector(vector, MIMEx(length=3), learn_every=2)
    env.reset(seed=0)
    rewards, info = [env.step(env.action_space.sample())[i] for i in (1, 4)]
    assert np.isfinite(rewards).all()
    assert info["reward_intrinsic"].shape == (2,)
    env.close()


# One environment


def test_every_step_to_the_final_one_has_a_bonus():
    bonus = NotingBonus(3)
    env = wrap(ProbeEnv(), bonus, beta=BonusScale(2.0, normalize=False))
    for episode, steps in enumerate(EPISODE_LENGTHS):
        env.reset()
        for t in range(steps):
            _, reward, terminated, truncated, info = env.step(1)
            expected = float(signature(torch.tensor(episode), torch.tensor(t + 1)))
            assert reward == pytest.approx(2 * expected, rel=1e-5)
            assert info["reward_extrinsic"] == 0.0
            assert info["reward_intrinsic"] == pytest.approx(reward)
            assert int(bonus.windows[-1].valid.sum()) == min(t + 2, 5)
        assert terminated or truncated


@pytest.mark.filterwarnings("ignore::UserWarning")  # warnings about CartPole itself
def test_the_wrapper_passes_gymnasiums_check_env():
    # check_env requires equal rewards for equal seeds, which only the raw bonus has.
    raw = BonusScale(0.05, normalize=False)
    check_env(wrap(CartPoleEnv(), MIMEx(), beta=raw), skip_render_check=True)


def test_a_new_wrapper_continues_from_a_saved_state():
    env, other = (wrap(gymnasium.make("Pendulum-v1"), MIMEx(), learn_every=4) for _ in range(2))
    env.reset(seed=0)
    for _ in range(10):
        env.step(env.action_space.sample())
    other.load_state_dict(env.state_dict())
    assert other.stream.bonus.steps == env.stream.bonus.steps == 2
    for wrapped in (env, other):
        wrapped.reset(seed=5)
    assert env.step([0.5])[1] == other.step([0.5])[1]


def seen_action(env, wrapper, action):
    """The action that the bonus gets; Pendulum's bounds are -2 and 2."""
    bonus = NotingBonus(1)
    env = wrapper(env, bonus, beta=1.0, learn_every=None)
    env.reset(seed=0)
    shape = (1, 1) if wrapper is wrap_vector else (1,)
    env.step(np.full(shape, action, np.float32))
    return float(bonus.windows[-1].actions[0, -1])


def pendulum(*wrappers):
    env = gymnasium.make("Pendulum-v1")
    for wrapper in wrappers:
        env = wrapper(env)
    return env


@pytest.mark.parametrize(
    ("wrappers", "expected"),
    [
        ((), 2.0),  # Pendulum clips by itself
        ((ClipAction,), 2.0),
        ((ClipAction, RecordEpisodeStatistics), 2.0),
        ((partial(RescaleAction, min_action=-1.0, max_action=1.0), ClipAction), 1.0),
    ],
)
def test_the_bonus_sees_the_action_that_the_environment_receives(wrappers, expected):
    assert seen_action(pendulum(*wrappers), wrap, 7.0) == expected
    vector = SyncVectorEnv([lambda: pendulum(*wrappers)])
    assert seen_action(vector, wrap_vector, 7.0) == expected
    assert seen_action(pendulum(*wrappers), wrap, 0.5) == 0.5


def test_the_bonus_sees_actions_clipped_by_a_vector_clip_action():
    vector = of_vectors.ClipAction(SyncVectorEnv([pendulum]))
    assert seen_action(vector, wrap_vector, -7.0) == -2.0
