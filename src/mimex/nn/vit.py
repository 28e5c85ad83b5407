"""The vision transformer (ViT), with timm's parameter names, as a frozen encoder of images."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from mimex.files import replacing
from mimex.nn.networks import as_batch
from mimex.nn.transformer import Block

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Per-channel mean and std of ImageNet in [0, 1], which MAE and MVP were trained with."""

CHUNK = 32
"""Images per forward pass, which bounds the memory: 39 MB in the widest layer at 224 pixels."""

SOURCES = (
    "MVP's ViT-S/16 (vits-mae-hoi.pth, the paper's, by mvp.load in github.com/ir413/mvp; 12 "
    "heads), timm's (timm.create_model('vit_small_patch16_224', pretrained=True).state_dict() "
    "saved with safetensors; 6 heads), or an encoder.safetensors of `mimex pretrain`"
)

HEADS = "mimex.heads"
"""The number of attention heads, in the header of a file of ``mimex pretrain``; the rest of the
architecture follows from the shapes of the weights."""

PATCHES = "patch_embed.proj.weight"

# Prefixes of weights that the encoder does not use: MAE's decoder and timm's classifier.
_IGNORED = ("decoder", "mask_token", "head", "fc_norm")


class PatchEmbed(nn.Module):
    """Splits an image into patches and projects each."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, kernel_size=patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        """Maps ``(B, 3, H, W)`` to ``(B, patches, width)``, in row-major order."""
        patches: Tensor = self.proj(images)
        return patches.flatten(2).transpose(1, 2)


class ViT(nn.Module):
    """Vision transformer; its output is the class token before the final norm, as in MVP.

    Args:
        image_size: Height and width of the images (pixels), a multiple of ``patch``.
        heads: Attention heads: 12 in MVP's ViT-S, 6 in timm's. The shapes of the weights fit any
            number of heads, but the features are right for one only.
        width: Token and output width.
        depth: Number of transformer blocks.
        patch: Height and width of a patch (pixels).
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        image_size: int = 224,
        *,
        heads: int = 12,
        width: int = 384,
        depth: int = 12,
        patch: int = 16,
    ) -> None:
        super().__init__()
        if image_size < patch or image_size % patch:
            raise ValueError(
                f"image_size={image_size} pixels cannot be cut into patches of {patch}: choose a "
                f"multiple, such as {max(round(image_size / patch), 1) * patch}."
            )
        self.image_size, self.heads = image_size, heads
        self.features = width
        self.patch_embed = PatchEmbed(patch, width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (image_size // patch) ** 2, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        for name, channels in (("mean", IMAGENET_MEAN), ("std", IMAGENET_STD)):
            self.register_buffer(name, torch.tensor(channels).view(3, 1, 1) * 255, persistent=False)
        nn.init.normal_(self.cls_token, std=0.02)
        nn.init.normal_(self.pos_embed, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        """Maps uint8 images ``(..., 3, H, W)`` to ``(..., width)``."""
        chunks = torch.split(as_batch(images, self.image_size), CHUNK)
        encoded = torch.cat([self._class_token(chunk) for chunk in chunks])
        return encoded.view(*images.shape[:-3], self.features)

    def _class_token(self, images: Tensor) -> Tensor:
        tokens = self.patch_embed((images - self.mean) / self.std)
        x = torch.cat([self.cls_token.expand(len(images), -1, -1), tokens], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return x[:, 0]


def save_encoder(path: Path, network: ViT) -> None:
    """Writes the weights of a network in half precision, to be read with ``load_encoder``."""
    weights = {name: value.half().contiguous() for name, value in network.state_dict().items()}
    content = safetensors.torch.save(weights, {HEADS: str(network.heads)})
    with replacing(path) as aside:
        aside.write_bytes(content)


def own_architecture(path: Path) -> dict[str, int] | None:
    """The arguments of the ``ViT`` that a file of ``mimex pretrain`` holds; None of other files.

    Raises:
        ValueError: If the file cannot be read, or holds another network.
    """
    if path.suffix != ".safetensors":
        return None
    try:
        with safe_open(path, "pt") as file:
            heads = (file.metadata() or {}).get(HEADS)
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from error
    if heads is None:
        return None
    try:
        (_, positions, width), (_, _, _, patch) = shapes["pos_embed"], shapes[PATCHES]
        # Blocks of another width do not count, so that what is built is no larger than the file.
        depth = sum(
            name.endswith(".attn.qkv.weight") and shape == (3 * width, width)
            for name, shape in shapes.items()
        )
        size = patch * math.isqrt(positions - 1)
        if int(heads) < 1 or width % int(heads):
            raise ValueError(f"{heads} attention heads do not share a width of {width}")
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{path} is no encoder of `mimex pretrain` ({type(error).__name__}: {error}): make it "
            "again, or use another file."
        ) from error
    return {"image_size": size, "heads": int(heads), "width": width, "depth": depth, "patch": patch}


def load_encoder(path: Path, *, image_size: int = 224, heads: int = 12) -> ViT:
    """The frozen network of a weight file.

    Args:
        path: A file of ``mimex pretrain``, which has its own architecture, or of a ViT-S/16.
        image_size: Height and width of the images (pixels) for a ViT-S/16.
        heads: Attention heads of a ViT-S/16: 12 of MVP's, 6 of timm's.

    Raises:
        FileNotFoundError: If there is no such file; the message says where to find one.
        ValueError: If the file cannot be read, or holds another network.
    """
    _require_file(path)
    network = ViT(**(own_architecture(path) or {"image_size": image_size, "heads": heads}))
    load_pretrained(network, path)
    return network


def load_pretrained(network: ViT, path: Path) -> None:
    """Loads an MAE, MVP or timm checkpoint and freezes the network.

    Positional embeddings are interpolated if the checkpoint has another image size.

    Args:
        network: A ViT with the width, depth and number of heads of the checkpoint.
        path: A ``.safetensors`` file, or a ``torch.save`` file of tensors, at the top level or
            under the key ``model``. No code in it is executed.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be read, or has the weights of another network.
    """
    _require_file(path)
    weights = {name: value for name, value in _read(path).items() if not name.startswith(_IGNORED)}
    expected = network.state_dict()
    if "pos_embed" in weights:
        weights["pos_embed"] = _fit_positions(weights["pos_embed"], network.pos_embed, path)
    faults = [f"{name} is missing" for name in expected if name not in weights]
    faults += [f"{name} is unknown" for name in weights if name not in expected]
    faults += [
        f"{name} has shape {tuple(weights[name].shape)}, expected {tuple(value.shape)}"
        for name, value in expected.items()
        if name in weights and weights[name].shape != value.shape
    ]
    faults += [f"{name} is not finite" for name, x in weights.items() if not x.isfinite().all()]
    if faults:
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        raise ValueError(
            f"{path} holds another network: {'; '.join(faults[:3])}{more}. Expected the weights "
            f"of {SOURCES}."
        )
    network.load_state_dict(weights)
    network.requires_grad_(False)
    network.eval()


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; expected the weights of {SOURCES}.")


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{path} cannot be read as weights ({type(error).__name__}: {error}): it is cut short or "
        f"of another kind. Expected a .safetensors file, or a .pth file of tensors only, of "
        f"{SOURCES}."
    )


def _read(path: Path) -> dict[str, Tensor]:
    unreadable = (RuntimeError, ValueError, KeyError, EOFError, OSError)
    try:
        content: Any
        if path.suffix == ".safetensors":
            content = safetensors.torch.load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, *unreadable) as error:
        raise _unreadable(path, error) from error
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        content = content["model"]
    if not isinstance(content, dict) or not all(isinstance(x, Tensor) for x in content.values()):
        raise ValueError(
            f"{path} has no weights by name, nor under 'model'. Expected those of {SOURCES}."
        )
    return content


def _fit_positions(positions: Tensor, ours: Tensor, path: Path) -> Tensor:
    """Interpolates positional embeddings ``(1, 1 + n * n, C)`` to the network's grid."""
    if positions.shape == ours.shape or positions.ndim != 3 or positions.shape[2] != ours.shape[2]:
        return positions  # fits, or is rejected with the other shapes
    cls_token, grid = positions[:, :1], positions[:, 1:]
    old, new = (round((table.shape[1] - 1) ** 0.5) for table in (positions, ours))
    if old**2 != grid.shape[1]:
        raise ValueError(
            f"{path} has positions for {grid.shape[1]} patches, which is not a square; expected "
            f"{new * new}, or another square to interpolate from."
        )
    square = grid.float().transpose(1, 2).reshape(1, -1, old, old)  # (1, C, n, n)
    resized = F.interpolate(square, (new, new), mode="bicubic", align_corners=False)
    return torch.cat([cls_token.float(), resized.flatten(2).transpose(1, 2)], dim=1)
