import pytest
import torch
import torch.nn.functional as F

from mimex.nn.transformer import (
    SHORT_SEQUENCE,
    Block,
    attend,
    run,
    sinusoidal_positions,
    squared_error,
)


def textbook(q, k, v, key_bias):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    mask = None if key_bias is None else key_bias[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("keys", [1, 2, 3, 6, SHORT_SEQUENCE, SHORT_SEQUENCE + 1])
@pytest.mark.parametrize("biased", [False, True])
def test_attention_and_its_gradient_equal_the_textbook(keys, biased):
    torch.manual_seed(keys)
    q = torch.randn(4, 3, 2, 8, requires_grad=True)
    k, v = (torch.randn(4, keys, 2, 8, requires_grad=True) for _ in range(2))
    bias = torch.randn(4, keys) if biased else None
    ours, theirs = attend(q, k, v, bias), textbook(q, k, v, bias)
    assert torch.allclose(ours, theirs, atol=1e-5)
    weights = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad((ours * weights).sum(), (q, k, v)),
        torch.autograd.grad((theirs * weights).sum(), (q, k, v)),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-5)


def test_a_token_alone_is_computed_by_the_same_formula():
    torch.manual_seed(0)
    block, x = Block(16, 4), torch.randn(3, 1, 16)
    no_bias = torch.zeros(3, 1)  # changes nothing, but takes the way of many tokens
    assert torch.allclose(block(x), block(x, no_bias), atol=1e-6)


def test_leading_queries_alone_equal_those_of_the_whole():
    torch.manual_seed(0)
    block, x = Block(16, 4), torch.randn(3, 5, 16)
    assert torch.allclose(block(x, queries=2), block(x)[:, :2], atol=1e-6)


@pytest.mark.parametrize("queries", [None, 2])
@pytest.mark.parametrize("length", [1, 5])
def test_several_blocks_in_one_call_are_the_blocks_one_by_one(length, queries):
    torch.manual_seed(0)
    blocks = torch.nn.ModuleList(Block(16, 4) for _ in range(3))
    x, bias = torch.randn(3, length, 16), torch.zeros(3, length)
    queries = None if length == 1 else queries
    expected = blocks[2](blocks[1](blocks[0](x, bias), bias), bias, queries)
    assert torch.equal(run(blocks, x, bias, queries), expected)


def test_block_equals_torchs_own_encoder_layer():
    torch.manual_seed(0)
    ours = Block(16, 4)
    theirs = torch.nn.TransformerEncoderLayer(
        16,
        4,
        64,
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=1e-6,
        batch_first=True,
        norm_first=True,
    )
    names = {
        "self_attn.in_proj_weight": "attn.qkv.weight",
        "self_attn.in_proj_bias": "attn.qkv.bias",
        "self_attn.out_proj.weight": "attn.proj.weight",
        "self_attn.out_proj.bias": "attn.proj.bias",
        "linear1.weight": "mlp.fc1.weight",
        "linear1.bias": "mlp.fc1.bias",
        "linear2.weight": "mlp.fc2.weight",
        "linear2.bias": "mlp.fc2.bias",
    }
    theirs.load_state_dict(
        {name: ours.state_dict()[names.get(name, name)] for name in theirs.state_dict()}
    )
    x = torch.randn(3, 5, 16)
    assert torch.allclose(ours(x), theirs.eval()(x), atol=1e-5)


def test_positions_by_hand():
    table = sinusoidal_positions(3, 4)
    # position 1: sin(1), cos(1), sin(1 / 100), cos(1 / 100)
    assert table[1].tolist() == pytest.approx([0.841471, 0.540302, 0.0099998, 0.99995], abs=1e-6)
    assert table[0].tolist() == [0.0, 1.0, 0.0, 1.0]
    with pytest.raises(ValueError, match="even"):
        sinusoidal_positions(3, 5)


def test_width_must_fit_heads():
    with pytest.raises(ValueError, match="multiple of heads"):
        Block(10, 4)


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
