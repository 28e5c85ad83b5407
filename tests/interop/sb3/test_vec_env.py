from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
from tests.probe import EPISODE_LENGTHS, NotingBonus, ProbeEnv, signature

from mimex import RND, BonusScale, MIMEx
from mimex.interop.sb3 import (
    BonusDictRolloutBuffer,
    BonusRolloutBuffer,
    BonusVecEnv,
    load,
    save,
)

GAMMA = 0.9


def probes(num_envs=2):
    return DummyVecEnv([lambda n=n: Monitor(ProbeEnv(n)) for n in range(num_envs)])


def trained_ppo(env, steps=32, **kwargs):
    model = PPO(
        "MlpPolicy", env, n_steps=steps, batch_size=16, n_epochs=1, gamma=GAMMA, gae_lambda=1.0,
        seed=0, device="cpu", **kwargs,
    )  # fmt: skip
    model.learn(steps * env.num_envs)
    return model


def unflattened(values, buffer):
    """Undoes the flattening of minibatches: ``(T * N, ...)`` to ``(T, N, ...)``."""
    return values.reshape(buffer.n_envs, buffer.buffer_size, *values.shape[1:]).swapaxes(0, 1)


@pytest.mark.parametrize("ends_at", ["next", "observation"])
def test_ppo_trains_on_returns_of_the_bonus(ends_at):
    """The returns in PPO's buffer are the hand-computed discounted sums of the bonus."""
    env = BonusVecEnv(
        probes(),
        NotingBonus(3),
        beta=BonusScale(0.5, normalize=False),
        ends_at=ends_at,
        learn_every=None,
    )
    buffer = trained_ppo(env).rollout_buffer
    observations = torch.as_tensor(unflattened(buffer.observations, buffer))
    returns = unflattened(buffer.returns, buffer)
    episode, step = observations[..., 1], observations[..., 2]
    arrived = step + 1 if ends_at == "next" else step
    bonus = 0.5 * signature(episode, arrived, observations[..., 0]).numpy()  # (T, N)
    lengths = np.array(EPISODE_LENGTHS)[episode.numpy().astype(int) % len(EPISODE_LENGTHS)]
    ends = step.numpy() + 1 == lengths
    terminates = ends & (episode.numpy() % 2 == 0)
    np.testing.assert_allclose(buffer.rewards[~ends], bonus[~ends], rtol=1e-4)
    np.testing.assert_allclose(buffer.rewards[terminates], bonus[terminates], rtol=1e-4)
    # With lambda 1 the return of a step is its discounted sum of rewards to the episode's end.
    checked = 0
    for n in range(2):
        total = None  # unknown until the end of an episode
        for t in reversed(range(len(bonus))):
            if ends[t, n]:
                total = bonus[t, n] if terminates[t, n] else buffer.rewards[t, n]
            elif total is not None:
                total = bonus[t, n] + GAMMA * total
            if total is not None:
                assert returns[t, n] == pytest.approx(total, rel=1e-4)
                checked += 1
    assert checked > 40


def test_the_bonus_changes_the_policy():
    def weights(value):
        bonus = NotingBonus(3, lambda w: torch.full((len(w),), value))
        model = trained_ppo(BonusVecEnv(probes(), bonus, beta=1.0))
        return torch.cat([p.flatten() for p in model.policy.parameters()])

    assert torch.equal(weights(0.0), weights(0.0))
    assert not torch.equal(weights(0.0), weights(1.0))


def test_windows_end_with_the_terminal_observation_and_never_cross_episodes():
    bonus = NotingBonus(3)
    trained_ppo(BonusVecEnv(probes(), bonus))
    ends = set()
    for window in bonus.windows:
        for features, valid, actions in zip(
            window.features, window.valid, window.actions, strict=True
        ):
            steps = features[valid]
            assert len({tuple(row[:2].tolist()) for row in steps}) == 1
            assert steps[:, 2].diff().tolist() == [1.0] * (len(steps) - 1)
            assert torch.equal(actions[valid], steps[:, 3:])
            ends.add(tuple(steps[-1, :3].int().tolist()))
    assert {(0, 0, 6), (0, 1, 3), (0, 2, 1), (1, 3, 9)} <= ends
    assert not any(step == 0 for _, _, step in ends)


def test_monitor_reports_extrinsic_returns_and_infos_have_both_rewards():
    env = BonusVecEnv(make_vec_env("CartPole-v1", 2, seed=0), RND(), beta=10.0)
    env.reset()
    reports = []
    for _ in range(60):
        _, rewards, dones, infos = env.step(np.array([0, 0]))
        for n, info in enumerate(infos):
            assert info["reward_extrinsic"] == 1.0
            assert rewards[n] == pytest.approx(1 + info["reward_intrinsic"], rel=1e-5)
            if dones[n]:
                reports.append(info["episode"])
    assert len(reports) > 4
    assert all(report["r"] == report["l"] for report in reports)


@pytest.mark.parametrize("bonus_outside", [True, False])
def test_vec_normalize_works_inside_and_outside(bonus_outside):
    base = make_vec_env("Pendulum-v1", 2, seed=0)
    bonus = MIMEx(length=3)
    if bonus_outside:
        env = BonusVecEnv(VecNormalize(base), bonus, beta=0.1, learn_every=32)
    else:
        env = VecNormalize(BonusVecEnv(base, bonus, beta=0.1, learn_every=32))
    model = trained_ppo(env)
    assert model.get_vec_normalize_env() is not None
    assert bonus.steps == 2
    assert env.stream.reward_sums["intrinsic"] > 0


def test_an_outer_vec_normalize_gets_the_sum_of_both_rewards():
    env = VecNormalize(
        BonusVecEnv(
            probes(1),
            NotingBonus(3, lambda w: torch.tensor([4.0])),
            beta=BonusScale(1.0, normalize=False),
        )
    )
    env.reset()
    env.step(np.array([0]))
    assert env.get_original_reward().tolist() == [4.0]


def test_images_are_encoded_once_and_a_cnn_policy_trains():
    class ImageEnv(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.t = 0
            return self._image(), {}

        def step(self, action):
            self.t += 1
            return self._image(), 0.0, self.t == 5, False, {}

        def _image(self):
            return self.np_random.integers(0, 256, (36, 36, 3), np.uint8)

    seen = []

    def encoder(images):
        seen.append(tuple(images.shape))
        return images.float().mean((1, 2)) / 255

    env = BonusVecEnv(DummyVecEnv([ImageEnv] * 2), MIMEx(length=3), encoder=encoder, learn_every=8)
    model = PPO("CnnPolicy", env, n_steps=8, batch_size=8, n_epochs=1, device="cpu")
    model.learn(16)
    assert set(seen) == {(2, 36, 36, 3)}
    assert len(seen) == 1 + 8 + 1  # the reset, each step, and the final observations once
    assert env.stream.bonus.steps == 2


def test_dict_observations_with_a2c_and_a_normalized_bonus():
    class Pair(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict(
            {"a": gymnasium.spaces.Box(-1, 1, (2,)), "b": gymnasium.spaces.Discrete(3)}
        )
        action_space = gymnasium.spaces.Box(-1, 1, (1,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.t = 0
            return self.observation_space.sample(), {}

        def step(self, action):
            self.t += 1
            return self.observation_space.sample(), 0.0, False, self.t == 4, {}

    bonus = RND()
    scale = BonusScale(1.0)
    env = BonusVecEnv(DummyVecEnv([Pair, Pair]), bonus, beta=scale, learn_every=4)
    A2C("MultiInputPolicy", env, n_steps=5, device="cpu").learn(20)
    assert bonus.feature_dim == 5
    assert bonus.steps == 5


def test_subproc_and_dummy_vec_env_have_equal_rewards():
    rewards = []
    for kind in (DummyVecEnv, partial(SubprocVecEnv, start_method="fork")):
        env = BonusVecEnv(kind([lambda: ProbeEnv(0), lambda: ProbeEnv(1)]), NotingBonus(3))
        env.reset()
        rewards.append([env.step(np.array([0, 1]))[1].tolist() for _ in range(8)])
        env.close()
    assert rewards[0] == rewards[1]


# Bonus per rollout


def ppo(env, per_rollout, **kwargs):
    if per_rollout:
        kwargs |= {
            "rollout_buffer_class": BonusRolloutBuffer,
            "rollout_buffer_kwargs": {"bonus": env.rollout_bonus()},
        }
    return PPO(
        "MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu", **kwargs
    )


@pytest.mark.parametrize("normalize", [True, False])
def test_per_rollout_and_per_step_bonuses_give_equal_returns(normalize):
    """The bonus is not trained, so the time of scoring makes no difference."""
    returns, weights = [], []
    for per_rollout in (False, True):
        env = DummyVecEnv([lambda n=n: ProbeEnv(n) for n in range(2)])
        scale = BonusScale(0.5, normalize=normalize)
        model = ppo(BonusVecEnv(env, NotingBonus(3), beta=scale), per_rollout)
        model.learn(64)
        returns.append(model.rollout_buffer.returns)
        weights.append(torch.cat([p.flatten() for p in model.policy.parameters()]))
    np.testing.assert_allclose(returns[0], returns[1], rtol=1e-5)
    torch.testing.assert_close(weights[0], weights[1])
    assert np.isfinite(returns[1]).all()
    assert np.abs(returns[1]).max() > 0


def test_each_window_is_trained_on_once_in_chunks():
    bonus = RND()
    env = BonusVecEnv(make_vec_env("CartPole-v1", 2, seed=0), bonus, learn_every=24)
    ppo(env, per_rollout=True).learn(128)
    assert bonus.steps == 6  # of each 64: 24, 24 and 16
    assert env.stream.transitions == 128


def test_a_rollout_stopped_by_a_callback_is_discarded():
    env = BonusVecEnv(make_vec_env("CartPole-v1", 2, seed=0), RND(), learn_every=64)
    model = ppo(env, per_rollout=True)
    model.learn(64, callback=lambda values, _: values["n_steps"] < 10)
    assert env.stream.transitions == 0
    model.learn(64)
    assert env.stream.transitions == 64


def test_an_outer_vec_normalize_does_not_rescale_the_rollout_bonus():
    bonus = NotingBonus(1, lambda w: torch.full((len(w),), 3.0))
    inner = BonusVecEnv(
        make_vec_env("Pendulum-v1", 2, seed=0), bonus, beta=BonusScale(1.0, normalize=False)
    )
    held = inner.rollout_bonus()
    buffers = {"rollout_buffer_class": BonusRolloutBuffer, "rollout_buffer_kwargs": {"bonus": held}}
    model = PPO("MlpPolicy", VecNormalize(inner), n_steps=8, batch_size=8, device="cpu", **buffers)
    model.learn(16)
    assert model.rollout_buffer.rewards.max() <= 3.0  # Pendulum has no positive rewards
    assert model.rollout_buffer.rewards.max() > 1.0


def test_dict_observations():
    class Pair(gymnasium.ObservationWrapper):
        def __init__(self):
            super().__init__(ProbeEnv())
            self.observation_space = gymnasium.spaces.Dict({"a": self.env.observation_space})

        def observation(self, observation):
            return {"a": observation}

    env = BonusVecEnv(DummyVecEnv([Pair]), NotingBonus(3), beta=BonusScale(1.0, normalize=False))
    model = A2C(
        "MultiInputPolicy", env, n_steps=4, device="cpu",
        rollout_buffer_class=BonusDictRolloutBuffer,
        rollout_buffer_kwargs={"bonus": env.rollout_bonus()},
    )  # fmt: skip
    model.learn(4)
    assert (model.rollout_buffer.rewards >= 1.0).all()


def test_a_saved_model_continues_and_a_plain_pickle_raises(tmp_path):
    def environments():
        return BonusVecEnv(make_vec_env("CartPole-v1", 2, seed=0), MIMEx(length=3), learn_every=32)

    model = ppo(environments(), per_rollout=True)
    model.learn(64)
    save(model, tmp_path)
    env = environments()
    loaded = load(PPO, tmp_path, env, device="cpu")
    assert env.stream.bonus.steps == 2
    loaded.learn(64)
    assert env.stream.bonus.steps == 4
    bare = PPO.load(tmp_path / "model.zip", env=environments(), device="cpu")
    with pytest.raises(RuntimeError, match="no bonus"):
        bare.learn(64)


def test_the_bonus_sees_clipped_actions_and_ppo_unclipped_ones():
    bonus = NotingBonus(1)
    env = BonusVecEnv(make_vec_env("Pendulum-v1", 2), bonus, beta=0.1, learn_every=None)
    buffer = trained_ppo(env, policy_kwargs={"log_std_init": 1.0}).rollout_buffer
    sampled = torch.as_tensor(unflattened(buffer.actions, buffer)).squeeze(-1)  # (T, N)
    seen = torch.stack([window.actions[:, -1, 0] for window in bonus.windows])
    assert (sampled.abs() > 2).float().mean() > 0.2
    torch.testing.assert_close(seen, sampled.clamp(-2, 2))


class Ends(gymnasium.Env):
    """Episodes of three steps; the last one has a reward, and terminates or truncates."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, step_reward=0.0, terminates=True):
        self.step_reward, self.terminates = step_reward, terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        last = self.t == 3
        reward = 4.0 if last else self.step_reward
        ends = (last, False) if self.terminates else (False, last)
        return self.observation_space.sample(), reward, *ends, {}


def test_per_rollout_the_scale_and_the_report_include_the_extrinsic_reward():
    env = BonusVecEnv(DummyVecEnv([Ends] * 2), NotingBonus(2, lambda w: torch.ones(len(w))))
    ppo(env, per_rollout=True).learn(64)
    assert env.stream.reward_sums["extrinsic"] == 4.0 * 2 * (32 // 3)
    assert env.stream.scale.state_dict()["unrewarded"] < 3  # steps since the last goal
    assert env.stream.report["bonus/share"] < 0.5


@pytest.mark.parametrize("normalized", [False, True])
def test_per_rollout_values_added_at_truncations_are_not_counted_as_reward(normalized):
    """Stable-Baselines3 adds the value of the final observation to truncated steps."""
    inner = BonusVecEnv(DummyVecEnv([lambda: Ends(1.0, terminates=False)] * 2), NotingBonus(2))
    seen = []

    class Seen(VecNormalize):
        def step_wait(self):
            step = super().step_wait()
            seen.append(step[1].copy())
            return step

    kwargs = {
        "rollout_buffer_class": BonusRolloutBuffer,
        "rollout_buffer_kwargs": {"bonus": inner.rollout_bonus()},
    }
    model = ppo(Seen(inner, norm_reward=normalized), per_rollout=False, **kwargs)
    with torch.no_grad():
        model.policy.value_net.bias.fill_(50.0)
    model.learn(128)
    before = inner.stream.reward_sums["extrinsic"]
    seen.clear()
    model.learn(64, reset_num_timesteps=False)
    rewards = inner.stream.reward_sums["extrinsic"] - before
    assert rewards == pytest.approx(np.abs(np.stack(seen)).sum(), rel=0.02 if normalized else 0)


def test_normalize_is_refused_with_the_remedy():
    with pytest.raises(TypeError, match=r"MIMEx\(normalize=True\).*beta=BonusScale"):
        BonusVecEnv(make_vec_env("Pendulum-v1", 1), RND(), normalize=True)
