import numpy as np
import pytest
import torch
from gymnasium import spaces

from mimex.agents.spaces import ActionWriter, ObservationReader


def box(*shape, dtype=np.float32):
    return spaces.Box(-np.inf, np.inf, shape, dtype)


def test_a_vector_is_read_as_it_is():
    reader = ObservationReader(box(3))
    observation = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (reader.image, reader.vector) == (None, 3)
    assert torch.equal(reader(observation)["vector"], torch.from_numpy(observation))


def test_parts_of_a_dict_follow_each_other_by_name_and_codes_become_one_hot():
    space = spaces.Dict(
        {"b": box(2, 2, dtype=np.float64), "a": spaces.Discrete(3, start=5), "c": box(1)}
    )
    reader = ObservationReader(space)
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
    reader = ObservationReader(space)
    image = np.random.default_rng(0).integers(0, 256, (4, *shape), np.uint8)
    stored = reader({"eye": image, "joints": np.zeros((4, 2), np.float32)})
    assert reader.image == tuple(stored["image"].shape[1:]) == (3, 8, 6)
    expected = image.transpose(0, 3, 1, 2) if channels_last else image
    np.testing.assert_array_equal(stored["image"], expected)
    assert reader.layout["image"] == ((3, 8, 6), torch.uint8)


def test_a_picture_alone_has_an_empty_vector_beside_it():
    reader = ObservationReader(spaces.Box(0, 255, (3, 8, 8), np.uint8))
    assert reader(np.zeros((5, 3, 8, 8), np.uint8))["vector"].shape == (5, 0)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Tuple([box(1)]), "FlattenObservation"),
        (spaces.Dict({"t": spaces.Text(3)}), "'t' of the observation"),
        (spaces.Dict({n: spaces.Box(0, 255, (3, 8, 8), np.uint8) for n in "ab"}), "2 pictures"),
    ],
)
def test_what_no_network_takes_is_refused_with_the_remedy(space, words):
    with pytest.raises(ValueError, match=words):
        ObservationReader(space)


def test_actions_reach_the_tasks_own_bounds_and_no_further():
    low, high = np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32)
    writer = ActionWriter(spaces.Box(low, high))
    acted = writer(torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5], [7.0, -7.0]]))
    np.testing.assert_allclose(acted, [[-2, 0], [2, 10], [0, 7.5], [2, 0]])
    assert acted.dtype == np.float32


def test_actions_without_bounds_go_as_they_are():
    writer = ActionWriter(box(1))
    assert writer(torch.tensor([[70.0]])).tolist() == [[70.0]]


def test_discrete_actions_are_one_hot_to_the_agent():
    writer = ActionWriter(spaces.Discrete(3, start=-1))
    assert (writer.size, writer.discrete) == (3, True)
    codes = torch.nn.functional.one_hot(torch.tensor([0, 2])).float()
    assert writer(codes).tolist() == [-1, 1]


def test_other_action_spaces_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match="agents take a Box of real numbers or Discrete"):
        ActionWriter(spaces.MultiDiscrete([2, 3]))


def test_several_codes_follow_each_other_and_are_told_from_numbers():
    space = spaces.Dict(
        {"a": spaces.MultiDiscrete([2, 3], start=[0, 1]), "b": box(1), "c": spaces.MultiBinary(2)}
    )
    reader = ObservationReader(space)
    stored = reader(
        {"a": np.array([[1, 1], [0, 3]]), "b": np.array([[7.0], [8.0]]), "c": np.eye(2)}
    )
    assert stored["vector"].tolist() == [[0, 1, 1, 0, 0, 7, 1, 0], [1, 0, 0, 0, 1, 8, 0, 1]]
    assert reader.codes.tolist() == [True] * 5 + [False] + [True] * 2
