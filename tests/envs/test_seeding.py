"""One generator per environment."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mimex.envs.seeding import generator_states, generators, restored_generators


def test_a_generator_depends_on_seed_and_index_alone() -> None:
    few, many = generators(3, 2), generators(3, 50)
    assert few[1].random() == many[1].random()
    first = [generator.random() for generator in generators(3, 50)]
    assert len(set(first)) == 50
    assert not set(first) & {generator.random() for generator in generators(4, 50)}


def test_a_list_of_seeds_seeds_each_environment_separately() -> None:
    own = generators([8, 3], 2)
    assert own[1].random() == generators(3, 1)[0].random()


def test_without_a_seed_generators_differ() -> None:
    assert generators(None, 1)[0].random() != generators(None, 1)[0].random()


def test_generator_states_can_be_stored_as_json() -> None:
    originals = generators(0, 3)
    for generator in originals:
        generator.random(7)
    twins = restored_generators(json.loads(json.dumps(generator_states(originals))))
    np.testing.assert_array_equal(
        [generator.random(5) for generator in originals], [twin.random(5) for twin in twins]
    )


def test_invalid_seeds_raise() -> None:
    with pytest.raises(ValueError, match="seed is -1"):
        generators(-1, 1)
    with pytest.raises(ValueError, match="seed has 2 entries, but there are 3"):
        generators([1, 2], 3)
