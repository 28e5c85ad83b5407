import pytest
import torch
from torch import nn

from mimex.nn.mlp import mlp
from mimex.nn.selu import SELUNetwork, selu_


def test_selu_is_pytorchs_from_deep_below_zero_to_far_above():
    x = torch.cat([torch.linspace(-30, 30, 1001), torch.tensor([0.0, -1e-8, 1e-8, -100.0])])
    torch.testing.assert_close(selu_(x.clone()), nn.functional.selu(x), rtol=1e-6, atol=3e-7)


@pytest.mark.parametrize("widths", [(5, 3), (5, 8, 3), (5, 8, 4, 3)])
def test_values_and_gradients_are_those_of_the_same_layers_one_by_one(widths):
    torch.manual_seed(0)
    ours = mlp(widths, activation=nn.SELU, gain=1.5, container=SELUNetwork)
    plain = mlp(widths, activation=nn.SELU)
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(7, 5, requires_grad=True)
    weigh = torch.randn(7, 3)
    results = []
    for network in (ours, plain):
        out = network(x)
        loss = (out.square() * weigh).sum()
        results.append((out, *torch.autograd.grad(loss, [x, *network.parameters()])))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_the_derivative_is_that_of_the_value_in_double_precision():
    torch.manual_seed(0)
    network = mlp((3, 6, 2), activation=nn.SELU, container=SELUNetwork).double()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(network, (x,))


def test_an_input_without_gradient_gets_none():
    network = mlp((3, 4, 1), activation=nn.SELU, container=SELUNetwork)
    x = torch.randn(2, 3)
    network(x).sum().backward()
    assert x.grad is None
    assert all(p.grad is not None for p in network.parameters())
