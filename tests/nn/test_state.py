import pytest
import torch
from torch import Generator, nn

from mimex.nn.state import load_generator, load_optimizer, optimizer_state, require_same


def trained(**options):
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter], **options)
    parameter.sum().backward()
    optimizer.step()
    return parameter, optimizer


def test_optimizer_moments_are_restored_by_name_as_copies():
    parameter, optimizer = trained(fused=True)
    state = optimizer_state(optimizer, {"p": parameter})
    other = nn.Parameter(torch.zeros(2))
    fresh = torch.optim.Adam([other], fused=True)
    load_optimizer(fresh, {"p": other}, state)
    assert torch.equal(fresh.state[other]["exp_avg"], state["p"]["exp_avg"])
    fresh.state[other]["exp_avg"].zero_()
    assert state["p"]["exp_avg"].abs().sum() > 0


@pytest.mark.parametrize(("options", "counter"), [({"capturable": True}, "meta"), ({}, "cpu")])
def test_optimizer_moments_are_moved_to_the_device_of_their_parameter(options, counter):
    """A fused or capturable optimizer refuses a counter on another device than its parameter."""
    parameter, optimizer = trained()
    state = optimizer_state(optimizer, {"p": parameter})
    there = nn.Parameter(torch.zeros(2, device="meta"))
    elsewhere = torch.optim.Adam([there], **options)
    load_optimizer(elsewhere, {"p": there}, state)
    moments = elsewhere.state[there]
    assert {moments["exp_avg"].device.type, moments["exp_avg_sq"].device.type} == {"meta"}
    assert moments["step"].device.type == counter


def test_at_most_three_differences_are_named():
    ours = {name: torch.zeros(2) for name in "abcde"}
    with pytest.raises(ValueError, match=r"b is missing; c is missing \(and 2 more\)"):
        require_same(ours, {}, "it")
    with pytest.raises(ValueError, match="a has shape"):
        require_same({"a": torch.zeros(2)}, {"a": torch.zeros(3)}, "it")


def drawn(generator):
    return torch.rand(5, generator=generator).tolist()


def test_a_restored_generator_continues_its_random_numbers():
    first, second = Generator().manual_seed(1), Generator().manual_seed(2)
    drawn(first)
    load_generator(second, first.get_state())
    assert drawn(second) == drawn(first)


def test_a_generator_of_another_device_is_reseeded():
    states = [torch.full((16,), fill, dtype=torch.uint8) for fill in (1, 1, 2)]
    found = []
    for state in states:
        generator = Generator().manual_seed(1)
        load_generator(generator, state)
        found.append(drawn(generator))
    assert found[0] == found[1] != found[2]
    assert drawn(Generator().manual_seed(1)) not in found


@pytest.mark.parametrize("saved", [None, torch.zeros(16), torch.zeros(2, 8, dtype=torch.uint8)])
def test_an_invalid_generator_state_raises(saved):
    generator = Generator().manual_seed(1)
    with pytest.raises(ValueError, match="generator has"):
        load_generator(generator, saved)
    assert drawn(generator) == drawn(Generator().manual_seed(1))
