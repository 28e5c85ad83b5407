import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.parts import actions, picture_and_numbers, reader

from mimex.agents.encoders import (
    ConvolutionalEncoder,
    FrozenEncoder,
    ObsAdapter,
    OtherWeightsError,
    VectorEncoder,
    VisionSettings,
    make_encoder,
)
from mimex.agents.ppo import PPO, PPOSettings
from mimex.agents.returns import Batch
from mimex.nn.vit import ViT, save_encoder


def box(*shape, dtype=np.float32):
    return spaces.Box(-np.inf, np.inf, shape, dtype)


def test_a_vector_is_read_as_it_is():
    reader = ObsAdapter(box(3))
    observation = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (reader.image, reader.vector) == (None, 3)
    assert torch.equal(reader(observation)["vector"], torch.from_numpy(observation))


def test_parts_of_a_dict_follow_each_other_by_name_and_codes_become_one_hot():
    space = spaces.Dict(
        {"b": box(2, 2, dtype=np.float64), "a": spaces.Discrete(3, start=5), "c": box(1)}
    )
    reader = ObsAdapter(space)
    observation = {
        "a": np.array([5, 7]),
        "b": np.arange(8.0).reshape(2, 2, 2),
        "c": np.array([[8.0], [9.0]], np.float32),
    }
    expected = [[1, 0, 0, 0, 1, 2, 3, 8], [0, 0, 1, 4, 5, 6, 7, 9]]
    assert reader.vector == 8
    assert reader(observation)["vector"].tolist() == expected
    assert reader(observation)["vector"].dtype == torch.float32


@pytest.mark.parametrize("channels_last", [False, True])
def test_pictures_are_bytes_with_their_colours_first(channels_last):
    shape = (8, 6, 3) if channels_last else (3, 8, 6)
    space = spaces.Dict({"eye": spaces.Box(0, 255, shape, np.uint8), "joints": box(2)})
    reader = ObsAdapter(space)
    image = np.random.default_rng(0).integers(0, 256, (4, *shape), np.uint8)
    stored = reader({"eye": image, "joints": np.zeros((4, 2), np.float32)})
    assert reader.image == tuple(stored["image"].shape[1:]) == (3, 8, 6)
    expected = image.transpose(0, 3, 1, 2) if channels_last else image
    np.testing.assert_array_equal(stored["image"], expected)
    assert reader.layout["image"] == ((3, 8, 6), torch.uint8)


def test_a_picture_alone_has_an_empty_vector_beside_it():
    reader = ObsAdapter(spaces.Box(0, 255, (3, 8, 8), np.uint8))
    assert reader(np.zeros((5, 3, 8, 8), np.uint8))["vector"].shape == (5, 0)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Tuple([box(1)]), "FlattenObservation"),
        (spaces.Dict({"t": spaces.Text(3)}), "'t' of the observation"),
        (spaces.Dict({n: spaces.Box(0, 255, (3, 8, 8), np.uint8) for n in "ab"}), "2 images"),
    ],
)
def test_what_no_network_takes_is_refused_with_the_remedy(space, words):
    with pytest.raises(ValueError, match=words):
        ObsAdapter(space)


def test_several_codes_follow_each_other_and_are_told_from_numbers():
    space = spaces.Dict(
        {"a": spaces.MultiDiscrete([2, 3], start=[0, 1]), "b": box(1), "c": spaces.MultiBinary(2)}
    )
    reader = ObsAdapter(space)
    stored = reader(
        {"a": np.array([[1, 1], [0, 3]]), "b": np.array([[7.0], [8.0]]), "c": np.eye(2)}
    )
    assert stored["vector"].tolist() == [[0, 1, 1, 0, 0, 7, 1, 0], [1, 0, 0, 0, 1, 8, 0, 1]]
    assert reader.codes.tolist() == [True] * 5 + [False] + [True] * 2


def test_policy_and_bonus_see_the_normalized_vector():
    encoder = VectorEncoder(reader(2), normalize=True)
    observation = np.array([[0.0, 10.0], [2.0, 30.0]], np.float32)
    encoder.read(observation, update_stats=True)
    encoder.normalizer.sync()
    stored = encoder.read(observation)
    expected = torch.tensor([[-1.0, -1.0], [1.0, 1.0]])
    torch.testing.assert_close(encoder.bonus_features(stored), expected)
    torch.testing.assert_close(
        encoder.policy_input(stored, encoder.bonus_features(stored)), expected
    )


def test_codes_stay_as_they_are_beside_numbers_that_are_normalized():
    space = spaces.Dict({"cell": spaces.Discrete(2), "speed": spaces.Box(-9, 9, (1,))})
    encoder = VectorEncoder(ObsAdapter(space), normalize=True)
    seen = {"cell": np.array([0, 0, 0, 1]), "speed": np.array([[1.0], [3], [1], [3]])}
    encoder.read(seen, update_stats=True)
    encoder.normalizer.sync()
    features = encoder.bonus_features(encoder.read(seen))
    expected = [[1, 0, -1], [1, 0, 1], [1, 0, -1], [0, 1, 1]]
    torch.testing.assert_close(features, torch.tensor(expected, dtype=torch.float32))


def test_reading_without_watching_leaves_the_statistics_alone():
    encoder = VectorEncoder(reader(2))
    encoder.read(np.ones((5, 2), np.float32))
    assert encoder.normalizer.state_dict()["seen"]["count"] == 0


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
    joined = encoder.policy_input(stored, encoder.bonus_features(stored))
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
    assert torch.equal(encoder.bonus_features(stored), stored["image"])
    assert encoder.policy_input(stored, stored["image"]).shape == (11, 256)
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


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Where the shipped encoder would be."""
    path = tmp_path / "shipped.safetensors"
    monkeypatch.setattr("mimex.agents.encoders.SHIPPED", path)
    return path


VIT = VisionSettings(encoder="vit")


def test_without_a_file_the_shipped_encoder_is_used(shipped):
    network = ViT(48, heads=3, width=24, depth=1, patch=8)
    save_encoder(shipped, network)
    encoder = make_encoder(VIT, picture_and_numbers(48, 18), normalize=False, clip=5.0)
    seen = encoder.read(pixels(2))["image"]
    with torch.no_grad():
        expected = network(torch.from_numpy(pixels(2)["image"]))
    torch.testing.assert_close(seen, expected, rtol=1e-2, atol=1e-2)  # half precision
    fitted = VIT.fitted()
    assert (fitted.heads, fitted.image_size, len(fitted.sha256)) == (3, 48, 64)
    assert fitted.fitted() == fitted
    assert VisionSettings().fitted() == VisionSettings()


def test_a_file_that_has_changed_since_is_refused(shipped):
    save_encoder(shipped, ViT(48, heads=3, width=24, depth=1, patch=8))
    fitted = VIT.fitted()
    save_encoder(shipped, ViT(48, heads=3, width=24, depth=1, patch=8))
    with pytest.raises(OtherWeightsError, match=r"shipped.safetensors holds other weights"):
        fitted.fitted()


def test_without_a_shipped_encoder_the_error_says_how_to_make_one(shipped):
    with pytest.raises(
        FileNotFoundError, match=r"shipped.safetensors: train one with `mimex pretrain --out"
    ):
        make_encoder(VIT, picture_and_numbers(48, 18), normalize=False, clip=5.0)
    assert VIT.fitted() == VIT


def test_images_that_do_not_fit_the_encoder_are_refused_with_its_file(shipped):
    save_encoder(shipped, ViT(64, heads=3, width=24, depth=1, patch=8))
    with pytest.raises(ValueError, match=r"\(3, 48, 48\).*shipped.*\(3, 64, 64\).*Resize"):
        make_encoder(VIT, picture_and_numbers(48, 18), normalize=False, clip=5.0)
