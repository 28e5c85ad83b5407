import pytest
import torch

from mimex.nn.transformer import Block, key_bias, sinusoidal_positions


def test_masked_keys_do_not_affect_the_output():
    torch.manual_seed(0)
    block, x = Block(16, 4), torch.randn(3, 5, 16)
    keys = torch.tensor([[True, True, True, False, False]]).expand(3, 5)
    assert torch.allclose(block(x, key_bias(keys))[:, :3], block(x[:, :3]), atol=1e-6)
    assert block(x, key_bias(torch.zeros_like(keys))).isfinite().all()
    assert key_bias(torch.ones_like(keys)) is None


def test_a_single_token_is_computed_by_the_same_formula():
    torch.manual_seed(0)
    block, x = Block(16, 4), torch.randn(3, 1, 16)
    assert torch.allclose(block(x), block(x, torch.zeros(3, 1, 1, 1)), atol=1e-6)


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


def test_positional_encodings_match_hand_computed_values():
    table = sinusoidal_positions(3, 4)
    # position 1: sin(1), cos(1), sin(1 / 100), cos(1 / 100)
    assert table[1].tolist() == pytest.approx([0.841471, 0.540302, 0.0099998, 0.99995], abs=1e-6)
    assert table[0].tolist() == [0.0, 1.0, 0.0, 1.0]
    with pytest.raises(ValueError, match="even"):
        sinusoidal_positions(3, 5)


def test_width_must_fit_heads():
    with pytest.raises(ValueError, match="multiple of heads"):
        Block(10, 4)
