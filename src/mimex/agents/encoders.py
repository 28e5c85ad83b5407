"""Encoders of observations, in three steps.

``ObsAdapter`` converts an observation to one image and one vector. ``read`` converts these to the
format that a rollout stores, ``bonus_features`` computes the features for the bonus, and
``policy_input`` the input of actor and critic. A frozen network runs in ``read``, so that rollouts
store its features instead of images; a trained network and running statistics are applied in
``bonus_features``, so that stored observations can be encoded again.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from mimex.data.rollout import Layout, ObsDict
from mimex.data.spaces import all_discrete
from mimex.nn.networks import ConvEncoder
from mimex.nn.parallel import parallel_map, split_rows
from mimex.nn.running import Normalizer
from mimex.nn.vit import SOURCES, ViT, load_encoder, own_architecture

IMAGE, VECTOR = "image", "vector"
"""Names of the parts of a stored observation."""

PROJECTION = 128
"""Features of the image projection, and of the vector projection (MVP)."""

SHIPPED = Path(__file__).parents[1] / "pretrained" / "encoder.safetensors"
"""The image encoder shipped with mimex, trained by `mimex pretrain`."""

VIT_CHUNK = 8
"""Images per forward pass of the ViT on one thread."""


class ObsAdapter:
    """Converts observations to one image and one vector.

    Three-dimensional uint8 Boxes are images. Everything else is flattened and concatenated in the
    order of a Dict's keys, with discrete parts as one-hot codes.

    Attributes:
        image: Shape ``(C, H, W)`` of the image, or None.
        vector: Dimensions of the vector; 0 if there is only an image.
        groups: Start and end index in the vector of each key of a Dict observation.
        discrete: Whether the whole observation is discrete: the vector is one-hot codes.
        codes: ``(vector,)`` bool: which dimensions are one-hot codes, which are not normalized.

    Args:
        space: The single observation space.
        device: Device of the tensors.
    """

    def __init__(self, space: spaces.Space[Any], device: torch.device | str = "cpu") -> None:
        self.space, self.device = space, torch.device(device)
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        images = [name for name, part in parts.items() if _is_image(part)]
        if len(images) > 1:
            raise ValueError(
                f"the observation has {len(images)} images ({', '.join(images)}), but agents "
                "support one: leave the others out with gymnasium's FilterObservation"
            )
        self._image = images[0] if images else None
        self.image: tuple[int, int, int] | None = None
        self._channels_last = False
        if self._image is not None:
            shape = parts[self._image].shape
            assert shape is not None
            self._channels_last = shape[2] < shape[0]
            height, width, depth = shape if self._channels_last else (*shape[1:], shape[0])
            self.image = (depth, height, width)
        self._vectors = {name: part for name, part in parts.items() if name != self._image}
        widths = {name: _width(name, part) for name, part in self._vectors.items()}
        self.vector = sum(widths.values())
        ends = np.cumsum([*widths.values()]).tolist()
        self.groups = {
            name: (end - widths[name], end) for name, end in zip(widths, ends, strict=True) if name
        }
        self.discrete = all_discrete(space)
        discrete = [not isinstance(part, spaces.Box) for part in self._vectors.values()]
        self.codes = torch.tensor(discrete, dtype=torch.bool, device=self.device).repeat_interleave(
            torch.tensor(list(widths.values()), dtype=torch.long, device=self.device)
        )

    @property
    def square_image(self) -> tuple[int, int]:
        """Channels and width of the image; raises ValueError if it is not square."""
        assert self.image is not None
        depth, height, width = self.image
        if height != width:
            raise ValueError(
                f"images of {height} x {width} pixels; agents take square ones: resize them "
                "with gymnasium's ResizeObservation"
            )
        return depth, height

    @property
    def layout(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shapes and types of a stored observation."""
        found: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        if self.image is not None:
            found[IMAGE] = (self.image, torch.uint8)
        return found | {VECTOR: ((self.vector,), torch.float32)}

    def __call__(self, observation: Any) -> ObsDict:
        """Converts a batch of the environments' observations to tensors on the device."""
        parts = observation if isinstance(self.space, spaces.Dict) else {"": observation}
        found: ObsDict = {}
        if self._image is not None:
            image = torch.as_tensor(parts[self._image], device=self.device)
            found[IMAGE] = image.movedim(-1, 1) if self._channels_last else image
        columns = [self._column(part, parts[name]) for name, part in self._vectors.items()]
        if len(columns) == 1:
            found[VECTOR] = columns[0]
        else:
            size = len(next(iter(parts.values())))
            found[VECTOR] = torch.cat([torch.zeros(size, 0, device=self.device), *columns], dim=1)
        return found

    def _column(self, space: spaces.Space[Any], values: Any) -> Tensor:
        if isinstance(space, spaces.Discrete):
            codes = torch.as_tensor(values, device=self.device).long() - int(space.start)
            return torch.nn.functional.one_hot(codes, int(space.n)).float()
        if isinstance(space, spaces.MultiDiscrete):
            codes = torch.as_tensor(values - space.start, device=self.device).long()
            columns = zip(codes.flatten(1).T, space.nvec.flatten().tolist(), strict=True)
            return torch.cat(
                [torch.nn.functional.one_hot(*column) for column in columns], 1
            ).float()
        vectors: Tensor = torch.as_tensor(values, dtype=torch.float32, device=self.device)
        return vectors if vectors.ndim == 2 else vectors.reshape(len(vectors), -1)


def _is_image(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def _width(name: str, space: spaces.Space[Any]) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return math.prod(space.shape)
    of = f"{name!r} of the observation" if name else "the observation"
    raise ValueError(
        f"{of} is {space}, but agents take Box, Discrete, MultiDiscrete, MultiBinary, or a Dict: "
        "flatten it with gymnasium's FlattenObservation"
    )


class Encoder(nn.Module, ABC):
    """Base class of encoders for the bonus and for actor and critic.

    Attributes:
        layout: Shapes and types of a stored observation.
        feature_dim: Dimensions of the bonus's features.
        width: Dimensions of the input of actor and critic.
        chunk: Rows per forward pass, so that activations stay in cache.
        normalizer: Normalizes the vector part of observations.
        device: Device of the networks.

    Args:
        reader: Converts observations.
        layout: Shapes and types of a stored observation.
        feature_dim: Dimensions of the bonus's features.
        width: Dimensions of the input of actor and critic.
        normalize: Whether to normalize the vector by its running mean and std.
        clip: Clip range of the vector; in standard deviations if it is normalized.
    """

    chunk = 512

    def __init__(
        self,
        reader: ObsAdapter,
        layout: Layout,
        feature_dim: int,
        width: int,
        *,
        normalize: bool = False,
        clip: float = 5.0,
    ) -> None:
        super().__init__()
        self.layout, self.feature_dim, self.width = layout, feature_dim, width
        self.reader, self.device = reader, reader.device
        self.normalizer = Normalizer(
            reader.vector, reader.device, reader.codes, follow=normalize, clip=clip
        )

    @property
    def normalizes(self) -> bool:
        """Whether vectors are normalized."""
        return self.normalizer.follow

    def sync(self) -> None:
        """Applies the statistics of all observations so far, over all processes."""
        self.normalizer.sync()

    def read(self, observation: Any, *, update_stats: bool = False) -> ObsDict:
        """Converts observations for the rollout; ``update_stats`` adds them to the statistics."""
        stored = self.reader(observation)
        if update_stats:
            self.update_stats(stored)
        return stored

    def update_stats(self, stored: ObsDict) -> None:
        """Adds stored observations to the statistics."""
        self.normalizer.update_stats(stored[VECTOR])

    @abstractmethod
    def bonus_features(self, stored: ObsDict) -> Tensor:
        """Features for the bonus, ``(B, feature_dim)``; with gradient if a network is trained."""

    @abstractmethod
    def policy_input(self, stored: ObsDict, features: Tensor) -> Tensor:
        """The input of actor and critic ``(B, width)``, given the bonus's features."""


class VectorEncoder(Encoder):
    """Normalizes vectors; the policy and the bonus get the same features.

    Args:
        reader: Converts observations.
        shared: Of ``Encoder``: ``normalize``, ``clip``.
    """

    def __init__(self, reader: ObsAdapter, **shared: Any) -> None:
        super().__init__(reader, reader.layout, reader.vector, reader.vector, **shared)

    def bonus_features(self, stored: ObsDict) -> Tensor:
        return self.normalizer(stored[VECTOR])

    def policy_input(self, stored: ObsDict, features: Tensor) -> Tensor:
        return features


class ConvolutionalEncoder(Encoder):
    """Encodes images with a small CNN trained with the policy, and projects the vector, if any.

    Args:
        reader: Converts observations.
        shared: Of ``Encoder``: ``normalize``, ``clip``.
    """

    chunk = 128

    def __init__(self, reader: ObsAdapter, **shared: Any) -> None:
        depth, height = reader.square_image
        network = ConvEncoder(height, depth=depth)
        projected = PROJECTION if reader.vector else 0
        width = network.features + projected
        super().__init__(reader, reader.layout, network.features, width, **shared)
        self.network = network
        self.project_vector = nn.Linear(reader.vector, PROJECTION) if projected else None

    def bonus_features(self, stored: ObsDict) -> Tensor:
        features: Tensor = self.network(stored[IMAGE])
        return features

    def policy_input(self, stored: ObsDict, features: Tensor) -> Tensor:
        if self.project_vector is None:
            return features
        vector = self.project_vector(self.normalizer(stored[VECTOR]))
        return torch.cat([features, vector], dim=1)


class FrozenEncoder(Encoder):
    """Encodes images with a frozen ViT, whose features rollouts store, and projects the vector.

    As in MVP (Xiao et al., 2022): layer norm and projection of the image features, and a
    projection of the vector.

    Args:
        network: A pretrained ViT. It is not trained and not part of the agent's state.
        reader: Converts observations.
        shared: Of ``Encoder``: ``normalize``, ``clip``.
    """

    def __init__(self, network: ViT, reader: ObsAdapter, **shared: Any) -> None:
        layout = {**reader.layout, IMAGE: ((network.features,), torch.float32)}
        super().__init__(reader, layout, network.features, 2 * PROJECTION, **shared)
        self._frozen = (network.eval().to(reader.device),)  # a tuple: not a submodule
        self.project_image = nn.Sequential(
            nn.LayerNorm(network.features), nn.Linear(network.features, PROJECTION)
        )
        self.project_vector = nn.Linear(reader.vector, PROJECTION)

    def read(self, observation: Any, *, update_stats: bool = False) -> ObsDict:
        @torch.no_grad()
        def features(images: Tensor) -> Tensor:
            seen: Tensor = self._frozen[0](images)
            return seen

        stored = super().read(observation, update_stats=update_stats)
        return stored | {
            IMAGE: torch.cat(parallel_map(features, split_rows(stored[IMAGE], VIT_CHUNK)))
        }

    def bonus_features(self, stored: ObsDict) -> Tensor:
        return stored[IMAGE]

    def policy_input(self, stored: ObsDict, features: Tensor) -> Tensor:
        vector = self.project_vector(self.normalizer(stored[VECTOR]))
        return torch.cat([self.project_image(features), vector], dim=1)


class OtherWeightsError(RuntimeError):
    """An image encoder's file differs from the one that the policy was trained with."""


@dataclass(frozen=True)
class VisionSettings:
    """Image encoder of on-policy agents, with --observation pixels."""

    encoder: str = "cnn"
    """A small CNN that is trained with the policy ("cnn"), or a frozen, pretrained ViT ("vit")."""
    checkpoint: Path | None = None
    """Weights of the ViT: a file of `mimex pretrain`, or an MAE, MVP or timm file of a ViT-S/16
    (.safetensors, .pth); by default the encoder that is shipped with mimex."""
    heads: int = 12
    """Attention heads of a ViT-S/16, which its weights do not determine: 12 for MVP, 6 for timm.
    Files of `mimex pretrain` have their own."""
    image_size: int = 64
    """Width and height of the wrist camera's image (pixels); 224 for a ViT-S/16. Files of `mimex
    pretrain` have their own."""

    sha256: str = ""
    """Checksum of a file of `mimex pretrain`, filled in automatically. A run is resumed and
    evaluated only with the encoder that it was trained with."""

    @property
    def weights(self) -> Path:
        """Path of the ViT's weights."""
        return self.checkpoint or SHIPPED

    def fitted(self) -> VisionSettings:
        """Fills in heads, image size and checksum from a file of `mimex pretrain`.

        Raises:
            OtherWeightsError: If the file's checksum differs from that of these settings.
        """
        own = None
        if self.encoder == "vit" and self.weights.is_file():
            own = own_architecture(self.weights)
        if own is None:
            return self
        sha256 = hashlib.sha256(self.weights.read_bytes()).hexdigest()
        if self.sha256 not in ("", sha256):
            raise OtherWeightsError(
                f"{self.weights} holds other weights (sha256 {sha256[:12]}) than the run was "
                f"trained with ({self.sha256[:12]}): restore that file"
            )
        return replace(self, heads=own["heads"], image_size=own["image_size"], sha256=sha256)


def make_encoder(
    vision: VisionSettings, reader: ObsAdapter, *, normalize: bool, clip: float
) -> Encoder:
    """Builds the encoder for an observation space.

    Args:
        vision: Settings for images.
        reader: Converts observations.
        normalize: Whether to normalize vectors.
        clip: Clip range of vectors.
    """
    if reader.image is None:
        return VectorEncoder(reader, normalize=normalize, clip=clip)
    if vision.encoder == "cnn":
        return ConvolutionalEncoder(reader, normalize=normalize, clip=clip)
    if vision.checkpoint is None and not SHIPPED.is_file():
        raise FileNotFoundError(
            "--vision.encoder vit without --vision.checkpoint uses the encoder that is shipped "
            f"with mimex, but there is no file {SHIPPED}: train one with `mimex pretrain --out "
            "FOLDER` and add --vision.checkpoint FOLDER/encoder.safetensors, or pass a file with "
            f"the weights of {SOURCES}"
        )
    network = load_encoder(vision.weights, image_size=vision.image_size, heads=vision.heads)
    expected = (3, network.image_size, network.image_size)
    if reader.image != expected:
        raise ValueError(
            f"the observation's images have shape {reader.image}, but the encoder in "
            f"{vision.weights} takes {expected}: resize them with gymnasium's ResizeObservation, "
            "use --vision.image-size with a ViT-S/16, or train a network on them with "
            "--vision.encoder cnn"
        )
    return FrozenEncoder(network, reader, normalize=normalize, clip=clip)
