"""Runs where ray[rllib] is installed; see the module's docstring for the versions tried."""

import copy

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("ray.rllib", reason="ray[rllib] is not installed", exc_type=ImportError)

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.tune.registry import register_env
from tests.probe import NotingBonus, ProbeEnv, signature

from mimex import BonusScale, MIMEx, Window
from mimex.interop.rllib import BonusConnector, add_bonus, timeline


def pendulum():
    return gymnasium.make("Pendulum-v1")


def connector(built):
    connectors = built.learner_group._learner._learner_connector.connectors
    return next(c for c in connectors if isinstance(c, BonusConnector))


class Peek(ConnectorV2):
    """Records the rewards and observations of episodes."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __call__(self, *, rl_module, batch, episodes, **kwargs):
        for episode in self.single_agent_episode_iterator(episodes):
            steps = len(episode)
            self.seen.append(
                (np.array(episode.get_observations())[:steps], np.array(episode.get_rewards()))
            )
        return batch


def algorithm(bonus, env=ProbeEnv, num_envs=1, **options):
    register_env("probe", lambda config: env())
    config = (
        PPOConfig()
        .environment("probe")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs)
        .learners(num_learners=0)
        .training(train_batch_size=64, minibatch_size=32, num_epochs=1)
        .debugging(seed=0)
    )
    return add_bonus(config, bonus, **options).build_algo()


def train(bonus, seen=None, iterations=2, **options):
    built = algorithm(bonus, **options)
    if seen is not None:
        built.learner_group._learner._learner_connector.insert_after(BonusConnector, Peek(seen))
    for _ in range(iterations):
        built.train()
    weights = built.get_module().state_dict()
    built.stop()
    return torch.cat([value.flatten() for value in weights.values()])


@pytest.mark.parametrize("ends_at", ["next", "observation"])
def test_the_bonus_is_added_before_the_advantages(ends_at):
    seen, bonus = [], NotingBonus(3)
    train(bonus, seen, beta=BonusScale(0.5, normalize=False), ends_at=ends_at)
    checked = 0
    for observations, rewards in seen:
        rows = torch.as_tensor(observations)
        real = rewards != 0  # the step that PPO's connector adds has none
        arrived = rows[:, 2] + (ends_at == "next")
        expected = 0.5 * signature(rows[:, 1], arrived, rows[:, 0]).numpy()
        np.testing.assert_allclose(rewards[real], expected[real], rtol=1e-4)
        assert real.sum() >= len(rewards) - 1
        checked += int(real.sum())
    assert checked >= 128
    cut = 0
    for window in bonus.windows:
        for features, valid, actions in zip(
            window.features, window.valid, window.actions, strict=True
        ):
            steps = features[valid]
            assert len(steps[:, :2].unique(dim=0)) == 1
            assert steps[:, 2].diff().tolist() == [1.0] * (len(steps) - 1)
            assert len(steps) == min(int(steps[-1, 2]) + 1, 5)  # also across rollouts
            assert torch.equal(actions[valid][1:], steps[1:, 3:])
            cut += 1
    assert cut >= 128


def test_the_bonus_changes_the_policy_update():
    def weights(value):
        return train(NotingBonus(3, lambda w: torch.full((len(w),), value)), beta=1.0, iterations=1)

    assert torch.equal(weights(0.0), weights(0.0))
    assert not torch.equal(weights(0.0), weights(1.0))


def test_the_bonus_is_trained_on_each_window_once():
    bonus = MIMEx(length=3)
    train(bonus, env=pendulum, iterations=1, batch_size=32)
    assert bonus.steps == 2


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({}, 1.0),  # normalized actions are clipped before they are scaled to the bounds
        ({"normalize_actions": False, "clip_actions": True}, 2.0),
        ({"normalize_actions": False, "clip_actions": False}, 5.0),
    ],
)
def test_the_bonus_sees_the_actions_that_environments_receive(settings, most):
    space = gymnasium.spaces.Box(-2.0, 2.0, (1,))
    made = BonusConnector(bonus=NotingBonus(1), **settings)
    assert made._received(torch.tensor([[5.0], [0.5]]), space).tolist() == [[most], [0.5]]


def test_a_batch_advances_the_scale_by_the_steps_of_each_environment():
    """The bonus of a step is the same in all environments, so the scale's averages are known."""
    scale = BonusScale()
    bonus = NotingBonus(3, lambda w: w.features[:, -1, 2])
    built = algorithm(bonus, num_envs=2, beta=scale)
    built.train()
    built.stop()
    state = scale.state_dict()
    assert state["rows"] == pytest.approx(32, abs=4)  # 64 steps of two environments
    assert state["steps"] == sum(map(len, bonus.windows)) >= 64


def test_timeline_assigns_steps_to_runners_and_environments():
    # One runner with two environments: completed episodes first, then running ones.
    rows, columns = timeline([2, 3, 4, 3], runners=1, envs=2)
    assert [columns[i] for i in (0, 2, 5, 9)] == [0, 1, 0, 1]
    assert rows.tolist() == [0, 1, 0, 1, 2, 2, 3, 4, 5, 3, 4, 5]
    # Two runners with one environment each, one after the other in the batch.
    rows, columns = timeline([2, 4, 5, 1], runners=2, envs=1)
    assert rows.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert columns.tolist() == [0] * 6 + [1] * 6
    # No two steps have the same position.
    lengths = np.random.default_rng(0).integers(1, 30, 40).tolist()
    rows, columns = timeline(lengths, runners=3, envs=4)
    assert len(set(zip(rows, columns, strict=True))) == sum(lengths)


def test_rllib_checkpoints_contain_the_bonus_and_its_scale(tmp_path):
    bonus, again = MIMEx(length=3), MIMEx(length=3, seed=7)
    first, second = (algorithm(b, env=pendulum, batch_size=32) for b in (bonus, again))
    first.train()
    second.train()
    saved = copy.deepcopy(connector(first).get_state())
    first.save_to_path(tmp_path / "run")
    first.train()  # not in the checkpoint
    second.restore_from_path(tmp_path / "run")
    loaded = connector(second).get_state()
    assert loaded["scale"] == saved["scale"]
    assert loaded["reward_sums"] == saved["reward_sums"]
    window = Window(torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(0)))
    reference = MIMEx(length=3)
    reference.load_state_dict(saved["bonus"])
    assert torch.equal(again.reward(window), reference.reward(window))
    assert not torch.equal(again.reward(window), bonus.reward(window))
    second.train()  # training continues
    assert again.steps == reference.steps + 2
    for built in (first, second):
        built.stop()
