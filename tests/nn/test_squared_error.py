import torch

from mimex.nn.squared_error import squared_error


def test_squared_error_and_its_gradient_equal_autograd():
    torch.manual_seed(0)
    x, weight, bias = (
        torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((7, 3), (5, 3), (5,))
    )
    features, rows = torch.randn(11, 5, dtype=torch.float64), torch.randint(0, 11, (7,))
    plain = (x @ weight.t() + bias - features[rows]).square().mean(1)
    assert torch.allclose(squared_error(x, weight, bias, features, rows), plain)
    assert torch.autograd.gradcheck(
        lambda *args: squared_error(*args, features, rows), (x, weight, bias)
    )
