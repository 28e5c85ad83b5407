import math

import torch
from torch import nn

from mimex.nn.mlp import mlp


def test_widths_activations_and_gains():
    network = mlp((4, 8, 8, 2), activation=nn.SELU, gain=math.sqrt(2), last_gain=0.01)
    assert [type(m) for m in network] == [nn.Linear, nn.SELU, nn.Linear, nn.SELU, nn.Linear]
    middle, last = network[2].weight, network[4].weight
    assert torch.allclose(middle @ middle.t(), 2 * torch.eye(8), atol=1e-5)
    assert torch.allclose(last @ last.t(), 1e-4 * torch.eye(2), atol=1e-7)
    assert (network[0].bias == 0).all()
