"""From a task's spaces to what networks take, and back: the boundary to NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from mimex.data.rollout import Stored

IMAGE, VECTOR = "image", "vector"
"""The parts of what is kept of an observation."""


class ObservationReader:
    """Sorts the parts of any observation into one picture and one vector.

    Boxes of bytes with three dimensions are pictures; all else is flattened, discrete parts as
    one-hot codes, and parts of a Dict follow each other by name.

    Attributes:
        image: Shape ``(C, H, W)`` of the picture, or None.
        vector: Numbers of the vector; 0 where there is nothing but a picture.
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


class ActionWriter:
    """Turns an agent's actions into what the environments take.

    A Box's numbers are -1 to 1 for the agent, whatever the task's own bounds; beyond them they are
    cut off. Where a bound is infinite numbers go as they are. Discrete actions are one-hot codes.

    Attributes:
        size: Numbers of an action as the agent has it.
        discrete: Whether actions are one-hot codes.

    Args:
        space: Of a single action.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.discrete = isinstance(space, spaces.Discrete)
        self._dtype, self._start, self._shape = space.dtype, 0, space.shape or ()
        self._clipped = False
        self._bounds: Tensor | None = None  # (2, size), low and high, where they are not -1 and 1
        if isinstance(space, spaces.Discrete):
            self.size, self._start = int(space.n), int(space.start)
        elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            self.size = math.prod(space.shape)
            bounds = np.stack([space.low.ravel(), space.high.ravel()])
            self._clipped = bool(np.isfinite(bounds).all())
            if self._clipped and (bounds != [[-1.0], [1.0]]).any():
                self._bounds = torch.from_numpy(bounds)
        else:
            raise ValueError(
                f"the action space is {space}, but agents take a Box of real numbers or Discrete: "
                "wrap the task, for example with gymnasium's FlattenAction"
            )

    def __call__(self, actions: Tensor) -> NDArray[Any]:
        """Actions ``(B, size)`` as the environments take them."""
        return self.tensors(actions).cpu().numpy().astype(self._dtype, copy=False)

    def tensors(self, actions: Tensor) -> Tensor:
        """The same where the actions are, for environments that take tensors."""
        if self.discrete:
            return actions.argmax(1) + self._start
        if self._clipped:
            actions = actions.clip(-1.0, 1.0)
        if self._bounds is not None:
            low, high = self._bounds.to(actions.device)
            actions = low + (actions + 1) * 0.5 * (high - low)
        return actions.reshape(len(actions), *self._shape)


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
