"""Runs where torchrl is installed; see the module's docstring for the versions tried."""

import pytest
import torch

pytest.importorskip("torchrl", reason="torchrl is not installed")

from tests.probe import EPISODE_LENGTHS, NotingBonus, ProbeEnv, signature
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, GymWrapper, SerialEnv, TransformedEnv
from torchrl.envs.utils import check_env_specs
from torchrl.objectives.value import GAE

from mimex import ICM, RND, BonusScale, MIMEx
from mimex.interop.torchrl import BonusTransform


def probes(bonus, number=2, **options):
    base = SerialEnv(number, [lambda n=n: GymWrapper(ProbeEnv(n)) for n in range(number)])
    return TransformedEnv(base, BonusTransform(bonus, **options))


@pytest.mark.parametrize("ends_at", ["next", "observation"])
def test_each_step_has_the_bonus_of_its_window(ends_at):
    bonus = NotingBonus(3)
    env = probes(bonus, beta=BonusScale(0.5, normalize=False), ends_at=ends_at)
    rollout = env.rollout(40, break_when_any_done=False)
    episode, step = rollout["observation"][..., 1], rollout["observation"][..., 2]
    expected = 0.5 * signature(episode, step + (ends_at == "next"), rollout["observation"][..., 0])
    reward = rollout["next", "reward"][..., 0].double()
    torch.testing.assert_close(reward, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(rollout["next", "intrinsic_reward"], rollout["next", "reward"])
    assert (rollout["next", "extrinsic_reward"] == 0).all()
    lengths = torch.tensor(EPISODE_LENGTHS)[episode.long() % len(EPISODE_LENGTHS)]
    assert (step + 1 == lengths).sum() >= 10
    for window in bonus.windows:
        for features, valid, actions in zip(
            window.features, window.valid, window.actions, strict=True
        ):
            steps = features[valid]
            assert len(steps[:, :2].unique(dim=0)) == 1
            assert len(steps) == min(int(steps[-1, 2]) + 1, 5)
            assert torch.equal(actions[valid][1:], steps[1:, 3:])


def test_the_bonus_changes_the_advantages():
    def advantages(value):
        bonus = NotingBonus(3, lambda w: torch.full((len(w),), value))
        torch.manual_seed(0)
        rollout = probes(bonus, beta=BonusScale(1.0, normalize=False)).rollout(
            30, break_when_any_done=False
        )
        rollout["state_value"] = torch.zeros_like(rollout["next", "reward"])
        rollout["next", "state_value"] = torch.zeros_like(rollout["next", "reward"])
        gae = GAE(gamma=0.9, lmbda=1.0, value_network=None)
        return gae(rollout)["advantage"]

    assert (advantages(0.0) == 0).all()
    # The last of 30 steps of an unfinished episode has only its own bonus.
    assert advantages(1.0).min() >= 1.0
    assert advantages(1.0).max() > 3.0


def test_a_single_environment_and_a_collector_train_the_bonus():
    bonus = MIMEx(length=3)
    env = TransformedEnv(GymEnv("Pendulum-v1"), BonusTransform(bonus, learn_every=16))
    check_env_specs(env)
    before = bonus.steps
    collector = Collector(env, None, frames_per_batch=32, total_frames=64)
    batches = list(collector)
    assert len(batches) == 2
    assert bonus.steps >= before + 4
    total = batches[1]["next", "extrinsic_reward"] + batches[1]["next", "intrinsic_reward"]
    torch.testing.assert_close(batches[1]["next", "reward"], total)


def test_with_add_false_the_reward_is_unchanged():
    env = TransformedEnv(GymEnv("CartPole-v1"), BonusTransform(ICM(None, 2), add=False))
    rollout = env.rollout(5)
    assert (rollout["next", "reward"] == 1).all()
    assert (rollout["next", "intrinsic_reward"] > 0).any()


def test_a_loaded_state_restores_the_bonus():
    env, other = (
        TransformedEnv(GymEnv("Pendulum-v1"), BonusTransform(RND(), learn_every=4))
        for _ in range(2)
    )
    env.rollout(10)
    other.reset()
    other.transform.load_bonus_state_dict(env.transform.bonus_state_dict())
    assert other.transform.bonus.steps == env.transform.bonus.steps == 2
