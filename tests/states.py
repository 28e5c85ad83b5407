"""States broken in every place, to see that what cannot be loaded changes nothing."""

import copy

import torch


def leaves(state, path=()):
    """The paths to all values of a nested state; of many parameters to the first and the last."""
    many = len(state) > 12
    for key, value in [*state.items()][:: len(state) - 1 if many else 1]:
        yield (*path, key)
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))


def broken_states(state):
    """Each value in turn left out, or replaced by what it cannot be."""
    for path in leaves(state):
        wrong = [None, "x", torch.zeros(1, 2, 3, 4), ...]  # the last: left out
        for value in wrong:
            broken = copy.deepcopy(state)
            place = broken
            for key in path[:-1]:
                place = place[key]
            if value is ...:
                del place[path[-1]]
            else:
                place[path[-1]] = value
            yield path, value, broken


def same(one, other):
    """Whether two states are equal, bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one == other


def assert_refused_or_loaded(part, state):
    """A broken state is refused with a ValueError that changes nothing, or it was not broken."""
    refused, before = 0, copy.deepcopy(part.state_dict())
    for path, value, broken in broken_states(state):
        try:
            part.load_state_dict(broken)
        except ValueError:
            refused += 1
            assert same(before, part.state_dict()), (path, value)
        else:
            part.load_state_dict(copy.deepcopy(before))
    return refused
