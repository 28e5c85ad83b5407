import gymnasium
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.utils.env_checker import check_env

from mimex import BonusScale, MIMEx
from mimex.doctor.probe import EPISODE_LENGTHS, NotingBonus, ProbeEnv, signature
from mimex.interop.single import wrap


def test_every_step_to_the_final_one_is_paid_and_windows_start_anew():
    bonus = NotingBonus(3)
    env = wrap(ProbeEnv(), bonus, beta=BonusScale(2.0, "raw"))
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


@pytest.mark.filterwarnings("ignore::UserWarning")  # the checker's advice on CartPole itself
def test_it_is_an_environment_by_the_rules():
    # The same seed is paid the same: that is asked for, and only the raw bonus gives it.
    raw = BonusScale(0.05, "raw")
    check_env(wrap(CartPoleEnv(), MIMEx(), beta=raw), skip_render_check=True)


def test_state_is_what_a_fresh_wrapper_continues_from():
    env, other = (wrap(gymnasium.make("Pendulum-v1"), MIMEx(), learn_every=4) for _ in range(2))
    env.reset(seed=0)
    for _ in range(10):
        env.step(env.action_space.sample())
    other.load_state_dict(env.state_dict())
    assert other.stream.bonus.steps == env.stream.bonus.steps == 2
    for wrapped in (env, other):
        wrapped.reset(seed=5)
    assert env.step([0.5])[1] == other.step([0.5])[1]
