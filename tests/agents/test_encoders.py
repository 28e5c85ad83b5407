import numpy as np
import torch
from gymnasium import spaces
from tests.parts import actions, picture_and_numbers, reader

from mimex.agents.batch import Batch
from mimex.agents.encoders import (
    ConvolutionalEncoder,
    FrozenEncoder,
    Normaliser,
    VectorEncoder,
)
from mimex.agents.ppo import PPO
from mimex.agents.ppo_settings import PPOSettings
from mimex.agents.spaces import ObservationReader
from mimex.nn.vit import ViT


def test_statistics_stand_still_until_they_settle():
    normaliser = Normaliser(1)
    data = torch.tensor([[1.0], [3.0]])
    normaliser.watch(data)
    assert torch.equal(normaliser(data), data)
    normaliser.sync()
    torch.testing.assert_close(normaliser(data), torch.tensor([[-1.0], [1.0]]))


def test_far_numbers_are_cut_off():
    normaliser = Normaliser(1)
    normaliser.watch(torch.tensor([[-1.0], [1.0]]))
    normaliser.sync()
    assert normaliser(torch.tensor([[100.0]])).item() == 5.0


def test_a_saved_normaliser_continues_exactly():
    one, other = Normaliser(3), Normaliser(3)
    one.watch(torch.randn(50, 3))
    one.sync()
    one.watch(torch.randn(50, 3))  # seen, not settled
    other.load_state_dict(one.state_dict())
    for normaliser in (one, other):
        normaliser.sync()
    data = torch.randn(4, 3)
    assert torch.equal(one(data), other(data))


def test_policy_and_bonus_see_the_normalised_vector():
    encoder = VectorEncoder(reader(2))
    observation = np.array([[0.0, 10.0], [2.0, 30.0]], np.float32)
    encoder.read(observation, watch=True)
    encoder.normaliser.sync()
    stored = encoder.read(observation)
    expected = torch.tensor([[-1.0, -1.0], [1.0, 1.0]])
    torch.testing.assert_close(encoder.embed(stored), expected)
    torch.testing.assert_close(encoder.join(stored, encoder.embed(stored)), expected)


def test_codes_stay_as_they_are_beside_numbers_that_are_normalised():
    space = spaces.Dict({"cell": spaces.Discrete(2), "speed": spaces.Box(-9, 9, (1,))})
    encoder = VectorEncoder(ObservationReader(space))
    seen = {"cell": np.array([0, 0, 0, 1]), "speed": np.array([[1.0], [3], [1], [3]])}
    encoder.read(seen, watch=True)
    encoder.normaliser.sync()
    features = encoder.embed(encoder.read(seen))
    expected = [[1, 0, -1], [1, 0, 1], [1, 0, -1], [0, 1, 1]]
    torch.testing.assert_close(features, torch.tensor(expected, dtype=torch.float32))


def test_reading_without_watching_leaves_the_statistics_alone():
    encoder = VectorEncoder(reader(2))
    encoder.read(np.ones((5, 2), np.float32))
    assert encoder.normaliser.state_dict()["seen"]["count"] == 0


def pixels(count, size=48):
    generator = np.random.default_rng(0)
    return {
        "image": generator.integers(0, 256, (count, 3, size, size), np.uint8),
        "robot": generator.normal(size=(count, 18)).astype(np.float32),
    }


def test_pictures_are_kept_as_bytes_and_the_network_on_them_learns():
    encoder = ConvolutionalEncoder(picture_and_numbers(48, 18))
    stored = encoder.read(pixels(3))
    assert stored["image"].dtype == torch.uint8
    joined = encoder.join(stored, encoder.embed(stored))
    assert joined.shape == (3, encoder.width)
    joined.sum().backward()
    assert all(p.grad is not None for p in encoder.network.parameters())


def test_the_bonus_sees_a_picture_without_gradient():
    ppo = PPO(ConvolutionalEncoder(picture_and_numbers(48, 18)), actions(9), PPOSettings())
    _, _, features = ppo.act(ppo.encoder.read(pixels(3)))
    assert features.shape == (3, ppo.encoder.feature_dim)
    assert not features.requires_grad


def test_of_a_frozen_network_the_features_are_kept_and_nothing_is_trained_or_saved():
    torch.manual_seed(0)
    network = ViT(48, heads=2, width=16, depth=2)
    encoder = FrozenEncoder(network, picture_and_numbers(48, 18))
    observation = pixels(11)
    stored = encoder.read(observation)
    with torch.no_grad():
        expected = network(torch.from_numpy(observation["image"]))
    torch.testing.assert_close(stored["image"], expected)
    assert torch.equal(encoder.embed(stored), stored["image"])
    assert encoder.join(stored, stored["image"]).shape == (11, 256)
    assert not [name for name in encoder.state_dict() if "blocks" in name]


def test_an_agent_learns_from_pictures():
    torch.manual_seed(0)
    ppo = PPO(
        ConvolutionalEncoder(picture_and_numbers(48, 18)),
        actions(9),
        PPOSettings(epochs=3, minibatches=1),
    )
    stored = ppo.encoder.read(pixels(16))
    drawn, log_probs, _ = ppo.act(stored)
    values = ppo.values(stored)
    batch = Batch(stored, drawn, log_probs, torch.randn(16, 1), values, values + 1)
    first = ppo.update(batch)["ppo/value_loss"]
    assert ppo.update(batch)["ppo/value_loss"] < first
