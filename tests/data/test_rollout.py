import pytest
import torch

from mimex.data.rollout import Rollout

VECTOR = {"vector": ((2,), torch.float32)}


def test_features_that_are_the_vector_are_not_stored_twice():
    rollout = Rollout(3, 4, VECTOR, action_dim=1, feature_dim=None)
    stored = torch.randn(4, 2)
    rollout.put_observation(3, {"vector": stored}, stored)
    assert rollout.features is rollout.observations["vector"]
    assert torch.equal(rollout.features[3], stored)


def test_features_of_their_own_are_kept_beside():
    rollout = Rollout(3, 4, VECTOR, action_dim=1, feature_dim=5)
    stored, features = torch.randn(4, 2), torch.randn(4, 5)
    rollout.put_observation(1, {"vector": stored}, features)
    assert torch.equal(rollout.observations["vector"][1], stored)
    assert torch.equal(rollout.features[1], features)


def test_finals_come_in_the_order_of_ended_and_are_forgotten_on_clear():
    rollout = Rollout(2, 3, VECTOR, action_dim=1, feature_dim=None)
    assert rollout.finals()["vector"].shape == (0, 2)
    for step, envs in ((0, [1]), (1, [0, 2])):
        rollout.truncated[step, envs] = True
        final = torch.tensor([[float(step), float(env)] for env in envs])
        rollout.put_finals({"vector": final}, final)
    places = rollout.ended.nonzero().float()
    assert torch.equal(rollout.finals()["vector"], places)
    assert torch.equal(rollout.final_features(), places)
    rollout.clear()
    assert len(rollout.final_features()) == 0


def test_a_rollout_needs_a_step_and_an_environment():
    with pytest.raises(ValueError, match="num_envs=0"):
        Rollout(1, 0, VECTOR, action_dim=1, feature_dim=None)
