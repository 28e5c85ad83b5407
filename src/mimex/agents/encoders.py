"""From observations to what a policy takes: by their kind, and in three steps.

``read`` turns what the environment gave into what a rollout keeps, after ``ObservationReader`` has
sorted it into a picture and a vector; ``embed`` into what the bonus sees, ``join`` into the input
of actor and critic. A frozen network works in ``read``, so that rollouts keep its features instead
of images; a network that learns works in ``embed``, and so do statistics that move on: what is kept
can always be encoded anew.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from mimex.data.rollout import Layout, Stored
from mimex.data.spaces import all_discrete
from mimex.nn.conv import ConvEncoder
from mimex.nn.parallel import in_order, pieces
from mimex.nn.running import Normaliser
from mimex.nn.vit import SOURCES, ViT, load_pretrained

IMAGE, VECTOR = "image", "vector"
"""The parts of what is kept of an observation."""

PROJECTION = 128
"""Numbers that the policy takes of a picture, and of the joints beside it (MVP)."""

VIT_CHUNK = 8
"""Pictures that go through the ViT on one thread at once."""


class ObservationReader:
    """Sorts the parts of any observation into one picture and one vector.

    Boxes of bytes with three dimensions are pictures; all else is flattened, discrete parts as
    one-hot codes, and parts of a Dict follow each other by name.

    Attributes:
        image: Shape ``(C, H, W)`` of the picture, or None.
        vector: Numbers of the vector; 0 where there is nothing but a picture.
        groups: First index of each key of a Dict observation in the vector, and the one past its
            last.
        discrete: Whether all of the observation is discrete: the vector is one-hot codes.
        codes: ``(vector,)``, whether a number is of a discrete part: 0 or 1, and best left so.

    Args:
        space: Of a single observation.
        device: Where tensors shall be.
    """

    def __init__(self, space: spaces.Space[Any], device: torch.device | str = "cpu") -> None:
        self.space, self.device = space, torch.device(device)
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        images = [name for name, part in parts.items() if _is_image(part)]
        if len(images) > 1:
            raise ValueError(
                f"the observation has {len(images)} pictures ({', '.join(images)}), but one is "
                "what agents take: leave the others out with gymnasium's FilterObservation"
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
        """Depth and side of the picture; an error if it is no square, as convolutions need."""
        assert self.image is not None
        depth, height, width = self.image
        if height != width:
            raise ValueError(
                f"pictures of {height} x {width} pixels; agents take square ones: resize them "
                "with gymnasium's ResizeObservation"
            )
        return depth, height

    @property
    def layout(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """What is kept of an observation."""
        found: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        if self.image is not None:
            found[IMAGE] = (self.image, torch.uint8)
        return found | {VECTOR: ((self.vector,), torch.float32)}

    def __call__(self, observation: Any) -> Stored:
        """A batch of observations as the environments gave it, as tensors on the device."""
        parts = observation if isinstance(self.space, spaces.Dict) else {"": observation}
        found: Stored = {}
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
    """What one kind of observation needs.

    Attributes:
        layout: What a rollout keeps of an observation.
        feature_dim: Numbers that the bonus sees of an observation.
        width: Numbers that actor and critic take.
        chunk: Rows that go through the networks at once, so that what they leave behind stays in
            cache.
        normalizer: Normalizes the vector that every observation has.
        device: Where it works.

    Args:
        reader: Of the observations.
        layout: What a rollout keeps of an observation.
        feature_dim: Features that the bonus sees.
        width: Inputs of actor and critic.
        normalize: Whether the vector is normalized by running statistics of the observations.
        clip: Where it is clipped; if normalized, in standard deviations.
    """

    chunk = 512

    def __init__(
        self,
        reader: ObservationReader,
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
        self.normalizer = Normaliser(
            reader.vector, reader.device, reader.codes, follow=normalize, clip=clip
        )

    @property
    def normalizes(self) -> bool:
        """Whether vectors are normalized."""
        return self.normalizer.follow

    def sync(self) -> None:
        """Uses the statistics of all observations so far, from now on."""
        self.normalizer.sync()

    def read(self, observation: Any, *, watch: bool = False) -> Stored:
        """What a rollout keeps of observations; ``watch`` takes them into the statistics."""
        stored = self.reader(observation)
        if watch:
            self.normalizer.watch(stored[VECTOR])
        return stored

    @abstractmethod
    def embed(self, stored: Stored) -> Tensor:
        """What the bonus sees, ``(B, feature_dim)``; with gradient where a network learns."""

    @abstractmethod
    def join(self, stored: Stored, features: Tensor) -> Tensor:
        """The input of actor and critic ``(B, width)``, given what ``embed`` gave."""


class VectorEncoder(Encoder):
    """Vectors, the same for the policy and for the bonus.

    Args:
        reader: Of the observations.
        shared: Of ``Encoder``: ``normalize``, ``clip``.
    """

    def __init__(self, reader: ObservationReader, **shared: Any) -> None:
        super().__init__(reader, reader.layout, reader.vector, reader.vector, **shared)

    def embed(self, stored: Stored) -> Tensor:
        return self.normalizer(stored[VECTOR])

    def join(self, stored: Stored, features: Tensor) -> Tensor:
        return features


class ConvolutionalEncoder(Encoder):
    """Images, and a vector beside them, with a small CNN that is trained with the policy.

    Args:
        reader: Of the observations.
        shared: Of ``Encoder``: ``normalize``, ``clip``.
    """

    chunk = 128

    def __init__(self, reader: ObservationReader, **shared: Any) -> None:
        depth, height = reader.square_image
        network = ConvEncoder(height, depth=depth)
        beside = PROJECTION if reader.vector else 0
        width = network.features + beside
        super().__init__(reader, reader.layout, network.features, width, **shared)
        self.network = network
        self.project_vector = nn.Linear(reader.vector, PROJECTION) if beside else None

    def embed(self, stored: Stored) -> Tensor:
        features: Tensor = self.network(stored[IMAGE])
        return features

    def join(self, stored: Stored, features: Tensor) -> Tensor:
        if self.project_vector is None:
            return features
        joints = self.project_vector(self.normalizer(stored[VECTOR]))
        return torch.cat([features, joints], dim=1)


class FrozenEncoder(Encoder):
    """Pictures and joints, with a frozen network on the pictures whose features are kept.

    This is the recipe of MVP (Xiao et al., 2022): layer norm and projection of the picture's
    features, and a projection of the joints beside it.

    Args:
        network: A pretrained ViT. It is no part of the agent's state: it never changes.
        reader: Of the observations.
        shared: Of ``Encoder``: ``normalize``, ``clip``.
    """

    def __init__(self, network: ViT, reader: ObservationReader, **shared: Any) -> None:
        layout = {**reader.layout, IMAGE: ((network.features,), torch.float32)}
        super().__init__(reader, layout, network.features, 2 * PROJECTION, **shared)
        self._frozen = (network.eval().to(reader.device),)  # in a tuple: it is no submodule
        self.project_image = nn.Sequential(
            nn.LayerNorm(network.features), nn.Linear(network.features, PROJECTION)
        )
        self.project_vector = nn.Linear(reader.vector, PROJECTION)

    def read(self, observation: Any, *, watch: bool = False) -> Stored:
        @torch.no_grad()
        def features(images: Tensor) -> Tensor:
            seen: Tensor = self._frozen[0](images)
            return seen

        stored = super().read(observation, watch=watch)
        return stored | {IMAGE: torch.cat(in_order(features, pieces(stored[IMAGE], VIT_CHUNK)))}

    def embed(self, stored: Stored) -> Tensor:
        return stored[IMAGE]

    def join(self, stored: Stored, features: Tensor) -> Tensor:
        joints = self.project_vector(self.normalizer(stored[VECTOR]))
        return torch.cat([self.project_image(features), joints], dim=1)


@dataclass(frozen=True)
class VisionSettings:
    """How PPO sees pictures, with --observation pixels."""

    encoder: str = "cnn"
    """A small network that learns with the policy ("cnn"), or a frozen ViT-S/16 ("vit")."""
    checkpoint: Path | None = None
    """Weights of the ViT: an MAE, MVP or timm file (.safetensors, .pth)."""
    heads: int = 12
    """Attention heads of the ViT, which its weights do not tell: 12 in MVP's, 6 in timm's."""
    image_size: int = 64
    """Width and height of the wrist camera's picture (pixels); the ViT takes 224."""


def make_encoder(
    vision: VisionSettings, reader: ObservationReader, *, normalize: bool, clip: float
) -> Encoder:
    """The encoder for a kind of observation.

    Args:
        vision: Settings for images.
        reader: Of the observations.
        normalize: Whether vectors are normalized.
        clip: Where vectors are clipped.
    """
    if reader.image is None:
        return VectorEncoder(reader, normalize=normalize, clip=clip)
    if vision.encoder == "cnn":
        return ConvolutionalEncoder(reader, normalize=normalize, clip=clip)
    if vision.checkpoint is None:
        raise ValueError(
            f"--vision.encoder vit needs --vision.checkpoint, a file with the weights of {SOURCES}"
        )
    network = ViT(vision.image_size, heads=vision.heads)
    load_pretrained(network, vision.checkpoint)
    return FrozenEncoder(network, reader, normalize=normalize, clip=clip)
