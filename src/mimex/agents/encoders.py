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

from mimex.agents.spaces import IMAGE, VECTOR, ObservationReader
from mimex.data.rollout import Layout, Stored
from mimex.nn import processes
from mimex.nn.conv import ConvEncoder
from mimex.nn.parallel import in_order, pieces
from mimex.nn.running import RunningMeanStd
from mimex.nn.vit import ViT

PROJECTION = 128
"""Numbers that the policy takes of a picture, and of the joints beside it (MVP)."""

VIT_CHUNK = 8
"""Pictures that go through the ViT on one thread at once."""


class Normaliser:
    """Normalises vectors by statistics that stand still until ``sync`` takes in what was seen.

    Within a rollout one observation is therefore one vector, whenever it was met. Codes of discrete
    values stay as they are: the deviation of a code is that of how often it was met, so that a
    policy would change with its own habits. On the deep sea one that had found the treasure in
    every episode lost it so, and keeps it with codes as they are (seed 0, count bonus).

    Attributes:
        follow: Whether ``sync`` does so; otherwise numbers are only cut off.
        clip: Where numbers are cut off, in standard deviations.

    Args:
        size: Numbers a vector.
        device: Where vectors are.
        codes: ``(size,)``, which of them are codes; none when left out.
    """

    def __init__(
        self, size: int, device: torch.device | str = "cpu", codes: Tensor | None = None
    ) -> None:
        self._codes = torch.zeros(size, dtype=torch.bool, device=device) if codes is None else codes
        self.follow, self.clip = True, 5.0  # as RND does (Burda et al., 2018)
        self._seen = RunningMeanStd((size,), device=device)
        self._new = RunningMeanStd((size,), device=device)  # since the processes last met
        self._mean, self._scale = torch.zeros(size, device=device), torch.ones(size, device=device)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Vectors ``(..., size)`` with mean 0 and deviation 1, clipped."""
        return ((vectors - self._mean) * self._scale).clamp_(-self.clip, self.clip)

    def watch(self, vectors: Tensor) -> None:
        """Takes vectors ``(n, size)`` into the statistics, to be used after ``sync``."""
        (self._seen if processes.size() == 1 else self._new).update(vectors)

    def sync(self) -> None:
        """Uses the statistics of all that was watched, in all processes, from now on."""
        if processes.size() > 1 and self._mean.numel():
            self._seen.absorb(self._new)
            self._new = RunningMeanStd(self._new.shape, self._mean.device)
        if self.follow and self._seen.count:
            self._mean = self._seen.mean.float().masked_fill(self._codes, 0.0)
            self._scale = (1 / self._seen.std).float().masked_fill(self._codes, 1.0)

    def state_dict(self) -> dict[str, Any]:
        """The statistics, those in use and those seen."""
        return {"seen": self._seen.state_dict(), "mean": self._mean, "scale": self._scale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self._seen.load_state_dict(state["seen"])
        self._mean = state["mean"].to(self._mean.device, copy=True)
        self._scale = state["scale"].to(self._scale.device, copy=True)


class Encoder(nn.Module, ABC):
    """What one kind of observation needs.

    Attributes:
        layout: What a rollout keeps of an observation.
        feature_dim: Numbers that the bonus sees of an observation.
        width: Numbers that actor and critic take.
        chunk: Rows that go through the networks at once, so that what they leave behind stays in
            cache.
        normaliser: Of the vector of numbers that every observation has.
        device: Where it works.
    """

    chunk = 512

    def __init__(
        self, reader: ObservationReader, layout: Layout, feature_dim: int, width: int
    ) -> None:
        super().__init__()
        self.layout, self.feature_dim, self.width = layout, feature_dim, width
        self.reader, self.device = reader, reader.device
        self.normaliser = Normaliser(reader.vector, reader.device, reader.codes)

    def read(self, observation: Any, *, watch: bool = False) -> Stored:
        """What a rollout keeps of observations; ``watch`` takes them into the statistics."""
        stored = self.reader(observation)
        if watch:
            self.normaliser.watch(stored[VECTOR])
        return stored

    @abstractmethod
    def embed(self, stored: Stored) -> Tensor:
        """What the bonus sees, ``(B, feature_dim)``; with gradient where a network learns."""

    @abstractmethod
    def join(self, stored: Stored, features: Tensor) -> Tensor:
        """The input of actor and critic ``(B, width)``, given what ``embed`` gave."""


class VectorEncoder(Encoder):
    """Vectors of numbers: normalised, for the policy and for the bonus.

    Args:
        reader: Of the observations.
    """

    def __init__(self, reader: ObservationReader) -> None:
        super().__init__(reader, reader.layout, reader.vector, reader.vector)

    def embed(self, stored: Stored) -> Tensor:
        return self.normaliser(stored[VECTOR])

    def join(self, stored: Stored, features: Tensor) -> Tensor:
        return features


class ConvolutionalEncoder(Encoder):
    """Pictures, and numbers beside them, with a small network on the pictures that learns.

    Args:
        reader: Of the observations.
    """

    chunk = 128

    def __init__(self, reader: ObservationReader) -> None:
        depth, height = reader.square_image
        network = ConvEncoder(height, depth=depth)
        beside = PROJECTION if reader.vector else 0
        super().__init__(reader, reader.layout, network.features, network.features + beside)
        self.network = network
        self.project_vector = nn.Linear(reader.vector, PROJECTION) if beside else None

    def embed(self, stored: Stored) -> Tensor:
        features: Tensor = self.network(stored[IMAGE])
        return features

    def join(self, stored: Stored, features: Tensor) -> Tensor:
        if self.project_vector is None:
            return features
        joints = self.project_vector(self.normaliser(stored[VECTOR]))
        return torch.cat([features, joints], dim=1)


class FrozenEncoder(Encoder):
    """Pictures and joints, with a frozen network on the pictures whose features are kept.

    This is the recipe of MVP (Xiao et al., 2022): layer norm and projection of the picture's
    features, and a projection of the joints beside it.

    Args:
        network: A pretrained ViT. It is no part of the agent's state: it never changes.
        reader: Of the observations.
    """

    def __init__(self, network: ViT, reader: ObservationReader) -> None:
        layout = {**reader.layout, IMAGE: ((network.features,), torch.float32)}
        super().__init__(reader, layout, network.features, 2 * PROJECTION)
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
        joints = self.project_vector(self.normaliser(stored[VECTOR]))
        return torch.cat([self.project_image(features), joints], dim=1)
