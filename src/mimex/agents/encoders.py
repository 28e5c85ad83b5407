"""From observations to what a policy takes: by their kind, and in three steps.

``read`` turns what the environment gave into what a rollout keeps, ``embed`` into what the bonus
sees, ``join`` into the input of actor and critic. A frozen network works in ``read``, so that
rollouts keep its features instead of images; a network that learns works in ``embed``, and so do
statistics that move on: what is kept can always be encoded anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mimex.data.rollout import Layout, Stored
from mimex.nn.conv import ConvEncoder
from mimex.nn.parallel import in_order, pieces
from mimex.nn.running import RunningMeanStd
from mimex.nn.vit import ViT

PROJECTION = 128
"""Numbers that the policy takes of a picture, and of the joints beside it (MVP)."""

VIT_CHUNK = 8
"""Pictures that go through the ViT on one thread at once."""


class Normaliser:
    """Normalises vectors by statistics that stand still until ``settle`` takes in what was seen.

    Within a rollout one observation is therefore one vector, whenever it was met.

    Attributes:
        follow: Whether ``settle`` does so; otherwise numbers are only cut off.
        clip: Where numbers are cut off, in standard deviations.

    Args:
        size: Numbers a vector.
    """

    def __init__(self, size: int) -> None:
        self.follow, self.clip = True, 5.0  # as RND does (Burda et al., 2018)
        self._seen = RunningMeanStd((size,))
        self._mean, self._scale = torch.zeros(size), torch.ones(size)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Vectors ``(..., size)`` with mean 0 and deviation 1, clipped."""
        return ((vectors - self._mean) * self._scale).clamp_(-self.clip, self.clip)

    def watch(self, vectors: Tensor) -> None:
        """Takes vectors ``(n, size)`` into the statistics, to be used after ``settle``."""
        self._seen.update(vectors)

    def settle(self) -> None:
        """Uses the statistics of all that was watched from now on."""
        if self.follow and self._seen.count:
            self._mean, self._scale = self._seen.mean.float(), (1 / self._seen.std).float()

    def state_dict(self) -> dict[str, Any]:
        """The statistics, those in use and those seen."""
        return {"seen": self._seen.state_dict(), "mean": self._mean, "scale": self._scale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self._seen.load_state_dict(state["seen"])
        self._mean, self._scale = state["mean"].clone(), state["scale"].clone()


class Encoder(nn.Module, ABC):
    """What one kind of observation needs.

    Attributes:
        layout: What a rollout keeps of an observation.
        feature_dim: Numbers that the bonus sees of an observation.
        width: Numbers that actor and critic take.
        chunk: Rows that go through the networks at once, so that what they leave behind stays in
            cache.
        normaliser: Of the vector of numbers that every observation has.
    """

    chunk = 2048

    def __init__(self, layout: Layout, feature_dim: int, width: int) -> None:
        super().__init__()
        self.layout, self.feature_dim, self.width = layout, feature_dim, width
        self.normaliser = Normaliser(layout["vector"][0][0])

    @abstractmethod
    def read(self, observation: Any, *, watch: bool = False) -> Stored:
        """What a rollout keeps of observations; ``watch`` takes them into the statistics."""

    @abstractmethod
    def embed(self, stored: Stored) -> Tensor:
        """What the bonus sees, ``(B, feature_dim)``; with gradient where a network learns."""

    @abstractmethod
    def join(self, stored: Stored, features: Tensor) -> Tensor:
        """The input of actor and critic ``(B, width)``, given what ``embed`` gave."""

    def _vector(self, observation: Any, watch: bool) -> Tensor:
        vectors: Tensor = torch.as_tensor(observation, dtype=torch.float32)
        if watch:
            self.normaliser.watch(vectors)
        return vectors


class VectorEncoder(Encoder):
    """State observations: the normalised vector, for the policy and for the bonus.

    Args:
        size: Numbers an observation.
    """

    def __init__(self, size: int) -> None:
        super().__init__({"vector": ((size,), torch.float32)}, size, size)

    def read(self, observation: Any, *, watch: bool = False) -> Stored:
        return {"vector": self._vector(observation, watch)}

    def embed(self, stored: Stored) -> Tensor:
        return self.normaliser(stored["vector"])

    def join(self, stored: Stored, features: Tensor) -> Tensor:
        return features


class ConvolutionalEncoder(Encoder):
    """Pictures and joints, with a small network on the pictures that learns with the policy.

    Args:
        image_size: Height and width of the pictures (pixels).
        size: Numbers of the joints' vector.
    """

    chunk = 128

    def __init__(self, image_size: int, size: int) -> None:
        network = ConvEncoder(image_size)
        layout: Layout = {
            "image": ((3, image_size, image_size), torch.uint8),
            "vector": ((size,), torch.float32),
        }
        super().__init__(layout, network.features, network.features + PROJECTION)
        self.network = network
        self.project_vector = nn.Linear(size, PROJECTION)

    def read(self, observation: Any, *, watch: bool = False) -> Stored:
        image = torch.as_tensor(observation["image"])
        return {"image": image, "vector": self._vector(observation["robot"], watch)}

    def embed(self, stored: Stored) -> Tensor:
        features: Tensor = self.network(stored["image"])
        return features

    def join(self, stored: Stored, features: Tensor) -> Tensor:
        joints = self.project_vector(self.normaliser(stored["vector"]))
        return torch.cat([features, joints], dim=1)


class FrozenEncoder(Encoder):
    """Pictures and joints, with a frozen network on the pictures whose features are kept.

    This is the recipe of MVP (Xiao et al., 2022): layer norm and projection of the picture's
    features, and a projection of the joints beside it.

    Args:
        network: A pretrained ViT. It is no part of the agent's state: it never changes.
        size: Numbers of the joints' vector.
    """

    def __init__(self, network: ViT, size: int) -> None:
        layout: Layout = {
            "image": ((network.features,), torch.float32),
            "vector": ((size,), torch.float32),
        }
        super().__init__(layout, network.features, 2 * PROJECTION)
        self._frozen = (network.eval(),)  # in a tuple, so that it is no submodule
        self.project_image = nn.Sequential(
            nn.LayerNorm(network.features), nn.Linear(network.features, PROJECTION)
        )
        self.project_vector = nn.Linear(size, PROJECTION)

    def read(self, observation: Any, *, watch: bool = False) -> Stored:
        @torch.no_grad()
        def features(images: Tensor) -> Tensor:
            seen: Tensor = self._frozen[0](images)
            return seen

        images = torch.as_tensor(observation["image"])
        seen = torch.cat(in_order(features, pieces(images, VIT_CHUNK)))
        return {"image": seen, "vector": self._vector(observation["robot"], watch)}

    def embed(self, stored: Stored) -> Tensor:
        return stored["image"]

    def join(self, stored: Stored, features: Tensor) -> Tensor:
        joints = self.project_vector(self.normaliser(stored["vector"]))
        return torch.cat([self.project_image(features), joints], dim=1)
