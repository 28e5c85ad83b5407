import numpy as np
import pytest
import torch
from gymnasium import spaces

from mimex import ICM, MIMEx, PseudoCount
from mimex.interop.adapter import BonusAdapter
from mimex.interop.flatten import SpaceFlattener, stack


def test_discrete_values_become_one_hot_codes_from_their_start():
    read = SpaceFlattener(spaces.Discrete(3, start=5))
    assert read(np.array([7, 5])).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_multi_discrete_values_are_concatenated_one_hot_codes():
    read = SpaceFlattener(spaces.MultiDiscrete([2, 3]))
    assert read(np.array([[1, 2]])).tolist() == [[0, 1, 0, 0, 1]]


def test_dict_entries_are_concatenated_in_key_order():
    space = spaces.Dict({"b": spaces.Box(-1, 1, (2,)), "a": spaces.Discrete(2)})
    values = {"b": np.array([[0.25, 0.5]]), "a": np.array([1])}
    keys = list(space.spaces)
    expected = {"a": [0.0, 1.0], "b": [0.25, 0.5]}
    assert SpaceFlattener(space)(values).tolist() == [expected[keys[0]] + expected[keys[1]]]
    assert SpaceFlattener(space, view="b")(values).tolist() == [[0.25, 0.5]]


def test_stacked_single_values_equal_a_batch():
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1, 1, (1,))})
    read = SpaceFlattener(space)
    singles = [{"a": 1, "b": np.array([0.5])}, {"a": 0, "b": np.array([-0.5])}]
    batch = {"a": np.array([1, 0]), "b": np.array([[0.5], [-0.5]])}
    assert torch.equal(read(stack(singles)), read(batch))


def test_images_require_an_encoder_which_gets_them_unchanged():
    space = spaces.Box(0, 255, (4, 4, 3), np.uint8)
    with pytest.raises(ValueError, match="looks like an image: give encoder"):
        SpaceFlattener(space)
    seen = []

    def encoder(images):
        seen.append(images)
        return images.float().mean((1, 2))

    rows = SpaceFlattener(space, encoder=encoder)(np.full((2, 4, 4, 3), 8, np.uint8))
    assert rows.tolist() == [[8.0] * 3] * 2
    assert seen[0].dtype == torch.uint8
    assert seen[0].shape == (2, 4, 4, 3)


def test_an_image_in_a_dict_is_named_in_the_error_and_view_can_exclude_it():
    space = spaces.Dict({"image": spaces.Box(0, 255, (4, 4, 3), np.uint8), "v": spaces.Discrete(2)})
    with pytest.raises(ValueError, match=r"observation\['image'\]"):
        SpaceFlattener(space)
    assert SpaceFlattener(space, view="v")({"v": np.array([0])}).tolist() == [[1, 0]]
    with pytest.raises(ValueError, match=r"view='w' is no part.*'image', 'v'"):
        SpaceFlattener(space, view="w")


def test_an_encoder_must_return_one_vector_per_observation():
    read = SpaceFlattener(spaces.Box(0, 1, (2, 2, 1)), encoder=lambda images: images)
    with pytest.raises(ValueError, match=r"\(3, 2, 2, 1\).*expected \(N, D\)"):
        read(np.zeros((3, 2, 2, 1)))


BOX, CODE, CODES = spaces.Box(-1, 1, (2,)), spaces.Discrete(3), spaces.MultiDiscrete([2, 3])
BITS = spaces.MultiBinary(4)


@pytest.mark.parametrize("kind", [MIMEx, PseudoCount])
@pytest.mark.parametrize(
    ("space", "options", "expected"),
    [
        (CODE, {}, True),
        (CODES, {}, True),
        (BITS, {}, False),  # any number of ones
        (BOX, {}, False),
        (spaces.Dict({"a": CODE, "b": CODES}), {}, True),
        (spaces.Dict({"a": CODE, "b": BOX}), {}, False),
        (spaces.Dict({"a": CODE, "b": BOX}), {"view": "a"}, True),
        (CODE, {"encoder": lambda x: x.float().reshape(-1, 1)}, False),
    ],
)
def test_the_space_decides_whether_observations_are_discrete(kind, space, options, expected):
    bonus = kind()
    BonusAdapter(bonus, **options).flatteners(space, BOX)
    assert bonus.discrete_obs is expected
    chosen = kind(discrete_obs=not expected)  # by hand
    BonusAdapter(chosen, **options).flatteners(space, BOX)
    assert chosen.discrete_obs is not expected


@pytest.mark.parametrize(
    ("space", "stride", "expected"),
    [(CODE, 1, True), (CODE, 2, False), (CODES, 1, False), (BOX, 1, False)],
)
@pytest.mark.parametrize("known", [False, True])
def test_the_space_decides_whether_actions_are_discrete(space, stride, expected, known):
    bonus = ICM(action_dim=spaces.flatdim(space) if known else None)
    BonusAdapter(bonus, stride=stride).flatteners(BOX, space)
    assert bonus.discrete is expected
