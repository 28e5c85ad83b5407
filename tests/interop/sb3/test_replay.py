import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from tests.probe import EPISODE_LENGTHS, NotingBonus, ProbeEnv, signature

from mimex import E3B, ICM, RND, BonusScale, MIMEx
from mimex.interop.sb3 import BonusDictReplayBuffer, BonusReplayBuffer, ReplayBonus

BOX = gymnasium.spaces.Box(-1, 1, (2,))


def probes(num_envs=2, action_space=None):
    return DummyVecEnv([lambda n=n: ProbeEnv(n, action_space) for n in range(num_envs)])


def dqn(held, env=None, **kwargs):
    kwargs = {"learning_starts": 10, "buffer_size": 60, "train_freq": 4, "batch_size": 8} | kwargs
    return DQN(
        "MlpPolicy", env or probes(), seed=0, device="cpu", replay_buffer_class=BonusReplayBuffer,
        replay_buffer_kwargs={"bonus": held}, **kwargs,
    )  # fmt: skip


@pytest.mark.parametrize("ends_at", ["next", "observation"])
def test_sampled_rewards_contain_the_bonus_of_each_transitions_window(ends_at):
    held = ReplayBonus(NotingBonus(3), beta=BonusScale(0.5, normalize=False), ends_at=ends_at)
    model = dqn(held)
    model.learn(200)  # the ring of 30 slots was overwritten more than twice
    samples = model.replay_buffer.sample(256)
    episode, step = samples.observations[:, 1], samples.observations[:, 2]
    arrived = step + 1 if ends_at == "next" else step
    torch.testing.assert_close(
        samples.rewards[:, 0].double(),
        0.5 * signature(episode, arrived, samples.observations[:, 0]),
        rtol=1e-4,
        atol=1e-4,
    )
    lengths = torch.tensor(EPISODE_LENGTHS)[episode.long() % len(EPISODE_LENGTHS)]
    assert (step + 1 == lengths).sum() > 10  # final transitions were among them
    assert set(samples.observations[:, 0].tolist()) == {0.0, 1.0}  # and both environments


@pytest.mark.parametrize("ends_at", ["next", "observation"])
def test_windows_are_complete_within_the_episode_and_the_ring_buffer(ends_at):
    bonus = NotingBonus(3)
    model = dqn(ReplayBonus(bonus, ends_at=ends_at), buffer_size=40)
    model.learn(150)
    bonus.windows.clear()
    buffer = model.replay_buffer
    buffer.sample(400)
    oldest = {  # the oldest stored step of each environment
        n: tuple(buffer.observations[buffer.pos, n, 1:3].tolist()) for n in range(2)
    }
    [window] = bonus.windows
    for features, valid, actions in zip(window.features, window.valid, window.actions, strict=True):
        steps = features[valid]
        env, episode = (int(number) for number in steps[-1, :2])
        assert (steps[:, :2] == steps[-1, :2]).all()
        assert steps[:, 2].diff().tolist() == [1.0] * (len(steps) - 1)
        first = int(oldest[env][1]) if oldest[env][0] == episode else 0
        assert len(steps) == min(int(steps[-1, 2]) - first + 1, 5)
        prev_actions = actions[valid] if first == 0 else actions[valid][1:]
        assert torch.equal(
            prev_actions, steps[:, 3:][-len(prev_actions) :] if len(prev_actions) else steps[:0, 3:]
        )


def test_a_reset_by_a_second_learn_starts_a_new_window():
    bonus = NotingBonus(3)
    model = dqn(ReplayBonus(bonus), env=probes(1), learning_starts=1000)
    model.learn(4)  # the first episode has 6 steps
    model.learn(2)
    buffer = model.replay_buffer
    assert buffer.observations[:6, 0, 1:3].tolist() == [[0, t] for t in range(4)] + [[1, 0], [1, 1]]
    assert buffer._episode_step[:6, 0].tolist() == [0, 1, 2, 3, 0, 1]


def test_the_bonus_changes_the_critic():
    def weights(value):
        bonus = NotingBonus(2, lambda w: torch.full((len(w),), value))
        model = SAC(
            "MlpPolicy", probes(1, BOX), learning_starts=20, batch_size=8, buffer_size=100, seed=0,
            device="cpu", replay_buffer_class=BonusReplayBuffer,
            replay_buffer_kwargs={"bonus": ReplayBonus(bonus, beta=1.0)},
        )  # fmt: skip
        model.learn(30)
        return torch.cat([p.flatten() for p in model.critic.parameters()])

    assert torch.equal(weights(0.0), weights(0.0))
    assert not torch.equal(weights(0.0), weights(1.0))


def test_the_bonus_trains_once_per_batch_after_learning_starts():
    bonus = MIMEx(length=3)
    model = dqn(ReplayBonus(bonus), env=probes(1), learning_starts=20, train_freq=1)
    model.learn(20)
    assert bonus.steps == 0
    model.learn(12, reset_num_timesteps=False)
    assert bonus.steps == 12


def test_learn_every_trains_on_every_third_batch_and_scores_all():
    bonus = RND()
    held = ReplayBonus(bonus, learn_every=3)
    model = dqn(held, env=probes(1), learning_starts=10, train_freq=1)
    model.learn(20)
    assert held.batches == 10
    assert bonus.steps == 3


def test_timeouts_bootstrap_and_terminations_do_not():
    model = dqn(ReplayBonus(NotingBonus(3)))
    model.learn(60)
    samples = model.replay_buffer.sample(300)
    episode, step = samples.observations[:, 1].long(), samples.observations[:, 2]
    ends = step + 1 == torch.tensor(EPISODE_LENGTHS)[episode % len(EPISODE_LENGTHS)]
    assert samples.dones[:, 0].bool().tolist() == (ends & (episode % 2 == 0)).tolist()


def test_td3_with_normalized_observations_and_an_action_conditioned_bonus():
    env = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=0))
    bonus = ICM(None, 1)
    model = TD3(
        "MlpPolicy", env, learning_starts=20, batch_size=8, buffer_size=100, device="cpu",
        replay_buffer_class=BonusReplayBuffer,
        replay_buffer_kwargs={"bonus": ReplayBonus(bonus, beta=BonusScale(0.1))},
    )  # fmt: skip
    model.learn(40)
    assert bonus.steps > 0
    noted = NotingBonus(1)
    buffer = model.replay_buffer
    buffer.bonus = ReplayBonus(noted, beta=0.0)
    slots, envs = np.array([3]), np.array([0])
    normalized = buffer._windows(slots, envs, env).features[0, -1]
    expected = env.normalize_obs(buffer.next_observations[3, 0])
    np.testing.assert_allclose(normalized, expected, rtol=1e-5)


def test_view_selects_an_entry_of_dict_observations():
    class Pair(gymnasium.ObservationWrapper):
        def __init__(self):
            super().__init__(ProbeEnv(0))
            self.observation_space = gymnasium.spaces.Dict(
                {"probe": self.env.observation_space, "noise": gymnasium.spaces.Box(0, 1, (2,))}
            )

        def observation(self, observation):
            return {"probe": observation, "noise": np.zeros(2, np.float32)}

    bonus, raw = NotingBonus(3), BonusScale(1.0, normalize=False)
    model = DQN(
        "MultiInputPolicy", DummyVecEnv([Pair]), learning_starts=5, batch_size=8, buffer_size=50,
        device="cpu", replay_buffer_class=BonusDictReplayBuffer,
        replay_buffer_kwargs={"bonus": ReplayBonus(bonus, beta=raw, view="probe")},
    )  # fmt: skip
    model.learn(40)
    samples = model.replay_buffer.sample(64)
    probe = samples.observations["probe"]
    torch.testing.assert_close(
        samples.rewards[:, 0].double(),
        signature(probe[:, 1], probe[:, 2] + 1, probe[:, 0]),
        rtol=1e-4,
        atol=1e-4,
    )


def test_the_beta_schedule_counts_environment_steps():
    scale = BonusScale(1.0, schedule="linear", over_steps=40)
    model = dqn(ReplayBonus(NotingBonus(3), beta=scale), env=probes(1))
    model.learn(20)
    model.replay_buffer.sample(8)
    assert scale.beta == pytest.approx(0.5)


def test_unsupported_settings_raise():
    with pytest.raises(ValueError, match="optimize_memory_usage=True"):
        BonusReplayBuffer(
            10, BOX, BOX, bonus=ReplayBonus(RND()), optimize_memory_usage=True,
            handle_timeout_termination=False,
        )  # fmt: skip
    with pytest.raises(ValueError, match="learn_every=0"):
        ReplayBonus(RND(), learn_every=0)


def test_an_episodic_bonus_raises_with_the_reason():
    with pytest.raises(ValueError, match=r"E3B needs its episode's whole past.*replay buffer"):
        ReplayBonus(E3B())
