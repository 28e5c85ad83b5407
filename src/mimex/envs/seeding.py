"""One random generator per environment, independent of the number of environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def generators(seed: int | Sequence[int] | None, count: int) -> list[np.random.Generator]:
    """Return `count` generators.

    Args:
        seed: Generator i depends only on the seed and i, not on `count`. With a sequence,
            generator i is the first generator of seed[i]. None takes entropy from the operating
            system.
        count: Number of generators.
    """
    if seed is None or isinstance(seed, (int, np.integer)):
        if seed is not None and seed < 0:
            raise ValueError(f"seed is {seed}, but must be 0 or more")
        entropy = np.random.SeedSequence().entropy if seed is None else int(seed)
        keys = [(entropy, i) for i in range(count)]
    else:
        if len(seed) != count:
            raise ValueError(f"seed has {len(seed)} entries, but there are {count} environments")
        keys = [(int(own), 0) for own in seed]
    return [
        np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=(i,))))
        for entropy, i in keys
    ]


def generator_states(all_generators: Sequence[np.random.Generator]) -> list[dict[str, Any]]:
    """Return the states of the generators as JSON-serializable values."""
    return [dict(generator.bit_generator.state) for generator in all_generators]


def restored_generators(states: Sequence[dict[str, Any]]) -> list[np.random.Generator]:
    """Return generators with the states from `generator_states`."""
    restored = [np.random.Generator(np.random.PCG64()) for _ in states]
    for generator, state in zip(restored, states, strict=True):
        generator.bit_generator.state = state
    return restored
