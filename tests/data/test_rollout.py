import pytest
import torch

from mimex.data.rollout import Rollout

VECTOR = {"vector": ((2,), torch.float32)}


def test_features_are_stored_with_observations():
    rollout = Rollout(3, 4, VECTOR, action_dim=1, feature_dim=5)
    stored, features = torch.randn(4, 2), torch.randn(4, 5)
    rollout.put_observation(1, {"vector": stored}, features)
    assert torch.equal(rollout.observations["vector"][1], stored)
    assert torch.equal(rollout.features[1], features)


def test_final_observations_are_in_the_order_of_ended_until_clear():
    rollout = Rollout(2, 3, VECTOR, action_dim=1, feature_dim=2)
    assert rollout.finals()["vector"].shape == (0, 2)
    for step, envs in ((0, [1]), (1, [0, 2])):
        rollout.truncated[step, envs] = True
        final = torch.tensor([[float(step), float(env)] for env in envs])
        rollout.put_finals({"vector": final}, final)
    positions = rollout.ended.nonzero().float()
    assert torch.equal(rollout.finals()["vector"], positions)
    assert torch.equal(rollout.final_features(), positions)
    rollout.clear()
    assert len(rollout.final_features()) == 0


def test_a_rollout_without_environments_raises():
    with pytest.raises(ValueError, match="num_envs=0"):
        Rollout(1, 0, VECTOR, action_dim=1, feature_dim=2)


def test_newest_reaches_back_over_short_rollouts():
    rollout, history = Rollout(2, 1, VECTOR, action_dim=1, feature_dim=2), {}
    seen = [0.0, 0.0, 0.0]
    for number in range(1, 4):
        values = torch.tensor([2.0 * number, 2.0 * number + 1])
        rollout.observations["vector"][:2, 0] = values[:, None]
        history = rollout.newest(3, history)
        seen += values.tolist()
        assert history["vector"][0, :, 0].tolist() == seen[-3:]
