import pytest
import torch
from torch import nn

from mimex.nn.mlp import mlp
from mimex.nn.selu import derivatives, outputs


def network_of(widths, dtype=torch.float32):
    torch.manual_seed(0)
    network = mlp(widths, activation=nn.SELU, gain=1.5).to(dtype)
    for name, parameter in network.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return network


def test_a_layer_is_selu_from_deep_below_zero_to_far_above():
    one = torch.ones(1, 1)
    x = torch.cat([torch.linspace(-30, 30, 1001), torch.tensor([0.0, -1e-8, 1e-8, -100.0])])
    found = outputs(x[:, None], [one, torch.zeros(1), one, torch.zeros(1)])[-1][:, 0]
    torch.testing.assert_close(found, nn.functional.selu(x), rtol=1e-6, atol=5e-7)


@pytest.mark.parametrize("widths", [(5, 3), (5, 8, 3), (5, 8, 4, 3)])
def test_values_and_derivatives_are_pytorchs(widths):
    network = network_of(widths, torch.float64)
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    weigh = torch.randn(7, 3, dtype=torch.float64)
    out = network(x)
    expected = torch.autograd.grad((out * weigh).sum(), [*network.parameters(), x])
    with torch.no_grad():
        parameters = list(network.parameters())
        passed = outputs(x, parameters)
        found = derivatives(weigh, passed, parameters, True)
    torch.testing.assert_close(passed[-1], out)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_in_single_precision_values_are_exact_to_rounding():
    network = network_of((5, 256, 128, 3))
    x = torch.randn(64, 5)
    with torch.no_grad():
        exact = network.double()(x.double())
        found = outputs(x, list(network.float().parameters()))[-1]
    assert float((found - exact).abs().max() / exact.abs().max()) < 2e-6
