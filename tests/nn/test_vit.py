"""The ViT equals PyTorch's own layers, and loads published weights."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mimex.nn.vit import HEADS, ViT, load_encoder, load_pretrained, own_architecture, save_encoder

SMALL = {"heads": 2, "width": 8, "depth": 2}


def small(image_size: int = 32, seed: int = 0) -> ViT:
    """A network with random weights and biases: zero biases could hide errors."""
    network = ViT(image_size, **SMALL)
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return network


def random_images(*batch: int, size: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (*batch, 3, size, size), dtype=torch.uint8, generator=generator)


def by_pytorch(network: ViT, images: Tensor, heads: int) -> Tensor:
    """The class token before the final norm, computed by PyTorch's layers."""
    weights = network.state_dict()
    width = weights["norm.weight"].numel()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    scaled = (images / 255 - mean[:, None, None]) / std[:, None, None]
    patches = F.unfold(scaled, 16, stride=16)  # (B, 3 * 16 * 16, patches)
    kernel = weights["patch_embed.proj.weight"].flatten(1)
    tokens = (kernel @ patches).transpose(1, 2) + weights["patch_embed.proj.bias"]
    x = torch.cat([weights["cls_token"].expand(len(images), -1, -1), tokens], 1)
    x = x + weights["pos_embed"]
    for depth in range(len(network.blocks)):
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", 1e-6, batch_first=True, norm_first=True
        )
        theirs = {"attn.qkv.": "self_attn.in_proj_", "attn.proj.": "self_attn.out_proj."}
        theirs |= {"mlp.fc1.": "linear1.", "mlp.fc2.": "linear2."}
        theirs |= {"norm1.": "norm1.", "norm2.": "norm2."}
        layer.load_state_dict(
            {
                their + kind: weights[f"blocks.{depth}.{our}{kind}"]
                for our, their in theirs.items()
                for kind in ("weight", "bias")
            }
        )
        x = layer(x)
    return x[:, 0]


@pytest.mark.parametrize("size", [32, 80])
def test_the_vit_equals_pytorchs_own_layers(size):
    network, images = small(size), random_images(3, size=size)
    with torch.no_grad():
        expected = by_pytorch(network, images, heads=2)
        assert torch.allclose(network(images), expected, atol=1e-4)
        assert not torch.allclose(network(images), by_pytorch(network, images, 1), atol=1e-2)


def test_the_full_size_has_timms_parameter_names_and_count():
    network = ViT()
    names = set(network.state_dict())
    parts = ["attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2", "norm1", "norm2"]
    layers = [f"blocks.{i}.{part}" for i in range(12) for part in parts]
    layers += ["patch_embed.proj", "norm"]
    expected = {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}
    assert names == expected | {"cls_token", "pos_embed"}
    # vit_small_patch16_224 without its head: 22,050,664 less 384 * 1000 + 1000.
    assert sum(parameter.numel() for parameter in network.parameters()) == 21_665_664
    assert network.features == 384


def test_batches_of_any_shape_have_one_feature_vector_per_image():
    network, images = small(), random_images(2, 20)
    with torch.no_grad():
        encoded = network(images)
        assert encoded.shape == (2, 20, 8)
        assert torch.allclose(encoded[1, 19], network(images[1, 19]), atol=1e-5)
        assert network(images[:, :0]).shape == (2, 0, 8)


def save(path: Path, content: dict[str, Any]) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(content, path)
    else:
        torch.save(content, path)
    return path


@pytest.mark.parametrize("kind", ["timm.safetensors", "timm.pth", "mae.pth", "half.safetensors"])
def test_checkpoints_of_known_kinds_load(tmp_path, kind):
    trained = small(seed=5)
    content: dict[str, Any] = dict(trained.state_dict())
    if kind.startswith("timm"):
        content |= {"head.weight": torch.ones(3, 8), "head.bias": torch.ones(3)}
    if kind.startswith("mae"):
        decoder = {"mask_token": torch.ones(1, 1, 4), "decoder_embed.weight": torch.ones(4, 8)}
        decoder |= {"decoder_blocks.0.norm1.weight": torch.ones(4), "decoder.x": torch.ones(1)}
        content = {"model": content | decoder, "epoch": 3}
    if kind.startswith("half"):
        content = {name: value.half() for name, value in content.items()}
    network = small(seed=6)
    load_pretrained(network, save(tmp_path / kind, content))
    tolerance = 1e-3 if kind.startswith("half") else 0.0  # half precision has 11 bits
    for name, value in trained.state_dict().items():
        assert torch.allclose(network.state_dict()[name], value, rtol=tolerance, atol=0), name
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert network.norm.weight.dtype == torch.float32


def test_position_embeddings_are_interpolated_to_the_image_size(tmp_path):
    trained = small(64)  # 4 x 4 patches
    rows = torch.arange(4.0)[:, None].expand(4, 4)
    with torch.no_grad():
        trained.pos_embed[0, 1:, 0] = rows.flatten()
        trained.pos_embed[0, 1:, 1] = rows.T.flatten()
        trained.pos_embed[0, 1:, 2] = 7.0
    network = small(128, seed=3)
    load_pretrained(network, save(tmp_path / "x.pth", trained.state_dict()))
    grid = network.pos_embed[0, 1:].view(8, 8, 8)
    assert torch.equal(network.pos_embed[:, 0], trained.pos_embed[:, 0])
    # The center of row 3 of 8 is at 1.25 of the rows 0, 1, 2, 3 of 4, where the bicubic kernel
    # (a = -3/4) weights them -27/256, 225/256, 67/256, -9/256: 225 + 2 * 67 - 3 * 9 = 332.
    middle = torch.tensor([332 / 256, 3 - 332 / 256])
    assert torch.allclose(grid[3:5, :, 0], middle[:, None].expand(2, 8), atol=1e-5)
    assert torch.allclose(grid[:, 3:5, 1], middle.expand(8, 2), atol=1e-5)
    assert torch.allclose(grid[:, :, 2], torch.full((8, 8), 7.0))


def test_a_missing_file_raises_with_where_to_find_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"x\.pth.*ir413/mvp.*timm"):
        load_pretrained(small(), tmp_path / "x.pth")


def changed(**changes: Tensor | None) -> dict[str, Tensor]:
    content = small().state_dict() | changes
    return {name: value for name, value in content.items() if value is not None}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (changed(cls_token=None), "cls_token is missing"),
        (changed(norm_pre=torch.ones(8)), "norm_pre is unknown"),
        (changed(cls_token=torch.ones(1, 1, 9)), r"cls_token has shape \(1, 1, 9\), .*\(1, 1, 8\)"),
        (changed(pos_embed=torch.ones(1, 4, 8)), "positions for 3 patches"),
        (changed(pos_embed=torch.ones(1, 10, 9)), r"pos_embed has shape \(1, 10, 9\)"),
        # 12 parameters of a third block, and 30 of another width; three are shown.
        (ViT(32, heads=2, width=16, depth=3).state_dict(), "holds another network.*and 39 more"),
        ({"model": {"a": 1}}, "no weights by name"),
        ({"state": [1, 2]}, "no weights by name"),
    ],
)
def test_weights_of_another_network_raise_with_the_first_differences(tmp_path, content, words):
    network = small()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(ValueError, match=words):
        load_pretrained(network, save(tmp_path / "x.pth", content))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("name", ["x.pth", "x.safetensors"])
def test_a_damaged_file_raises(tmp_path, name):
    path = save(tmp_path / name, small().state_dict())
    for content in (b"", b"<html>not found</html>", path.read_bytes()[:-500]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name} cannot be read as weights"):
            load_pretrained(small(), path)


def test_nothing_in_a_file_is_executed(tmp_path):
    class Bomb:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "executed"),))

    for extra in (Bomb(), argparse.Namespace(lr=1)):
        path = save(tmp_path / "x.pth", {"model": small().state_dict(), "args": extra})
        with pytest.raises(ValueError, match="tensors only"):
            load_pretrained(small(), path)
    assert not (tmp_path / "executed").exists()


def test_invalid_sizes_raise():
    with pytest.raises(ValueError, match=r"image_size=84 .*such as 80"):
        ViT(84)
    with pytest.raises(ValueError, match=r"\(1, 3, 48, 48\)"):
        small()(random_images(1, size=48))


def test_a_saved_encoder_is_loaded_with_its_architecture(tmp_path):
    trained = ViT(24, heads=3, width=12, depth=2, patch=8)
    path = tmp_path / "encoder.safetensors"
    save_encoder(path, trained)
    network = load_encoder(path)  # neither 224 pixels nor 12 heads
    assert (network.image_size, network.heads, len(network.blocks)) == (24, 3, 2)
    with torch.no_grad():
        images = random_images(2, size=24)
        torch.testing.assert_close(network(images), trained(images), rtol=1e-2, atol=1e-2)
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert all(value.dtype == torch.float16 for value in safetensors.torch.load_file(path).values())


def test_a_file_without_architecture_is_loaded_as_vit_s16(tmp_path):
    path = save(tmp_path / "timm.safetensors", ViT(heads=6).state_dict())
    assert own_architecture(path) is None
    network = load_encoder(path, image_size=64, heads=6)
    assert (network.image_size, network.heads, network.features) == (64, 6, 384)


@pytest.mark.parametrize(
    ("changes", "heads", "words"),
    [
        ({"pos_embed": None}, "3", "no encoder of `mimex pretrain`.*pos_embed.*make it again"),
        ({}, "5", "5 attention heads do not share a width of 12"),
        ({}, "many", "no encoder of `mimex pretrain`"),
        ({"cls_token": torch.ones(1, 1, 9)}, "3", r"cls_token has shape \(1, 1, 9\)"),
        ({"blocks.1.attn.qkv.weight": torch.ones(6, 2)}, "3", "another network"),
        ({"norm.bias": torch.full((12,), torch.nan)}, "3", "norm.bias is not finite"),
    ],
)
def test_an_altered_encoder_raises_with_its_name(tmp_path, changes, heads, words):
    weights = ViT(24, heads=3, width=12, depth=2, patch=8).state_dict() | changes
    kept = {name: value for name, value in weights.items() if value is not None}
    path = tmp_path / "encoder.safetensors"
    safetensors.torch.save_file(kept, path, {HEADS: heads})
    with pytest.raises(ValueError, match=rf"encoder.safetensors.*{words}"):
        load_encoder(path)


def test_a_truncated_encoder_raises_with_its_name(tmp_path):
    path = tmp_path / "encoder.safetensors"
    save_encoder(path, ViT(24, heads=3, width=12, depth=2, patch=8))
    whole = path.read_bytes()
    for size in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"encoder.safetensors cannot be read.*cut short.*MVP"):
            load_encoder(path)


def test_images_of_another_dtype_raise():
    with pytest.raises(ValueError, match=r"images is torch.float32 .*expected uint8"):
        small()(random_images(1).float())
