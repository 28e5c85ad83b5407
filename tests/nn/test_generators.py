"""Random numbers that continue, or begin anew."""

import pytest
import torch
from torch import Generator

from mimex.nn.generators import load_generator


def drawn(generator):
    return torch.rand(5, generator=generator).tolist()


def test_random_numbers_continue():
    first, second = Generator().manual_seed(1), Generator().manual_seed(2)
    drawn(first)
    load_generator(second, first.get_state())
    assert drawn(second) == drawn(first)


def test_those_of_another_kind_of_device_begin_anew_by_what_they_were():
    states = [torch.full((16,), fill, dtype=torch.uint8) for fill in (1, 1, 2)]
    found = []
    for state in states:
        generator = Generator().manual_seed(1)
        load_generator(generator, state)
        found.append(drawn(generator))
    assert found[0] == found[1] != found[2]
    assert drawn(Generator().manual_seed(1)) not in found


@pytest.mark.parametrize("saved", [None, torch.zeros(16), torch.zeros(2, 8, dtype=torch.uint8)])
def test_what_is_no_state_is_refused(saved):
    generator = Generator().manual_seed(1)
    with pytest.raises(ValueError, match="generator has"):
        load_generator(generator, saved)
    assert drawn(generator) == drawn(Generator().manual_seed(1))
