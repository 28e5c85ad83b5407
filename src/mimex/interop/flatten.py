"""Flattening of Gymnasium spaces: batches of observations or actions to vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.functional import one_hot

from mimex.bonus.base import IntrinsicReward
from mimex.bonus.inputs import Encoder
from mimex.data.spaces import View, select


class SpaceFlattener:
    """Flattens a batch of values of a space to vectors ``(N, D)``.

    Boxes are flattened, discrete values are one-hot encoded, and the entries of a Dict or a Tuple
    are concatenated in their order.

    Args:
        space: Space of one value.
        view: The part to use: a key of a Dict or several, indices or a slice of a flat Box.
        encoder: Maps the batch to vectors instead. It gets tensors as the environment returns them
            (a dict of tensors for a Dict, unless ``view`` is a single key). For images.
        name: What the values are, for error messages.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        *,
        view: View = None,
        encoder: Encoder | None = None,
        name: str = "observation",
    ) -> None:
        space, self._select = select(space, view)
        if encoder is None:
            _require_flat(space, name)
        self.space, self.encoder, self.name = space, encoder, name

    def __call__(self, values: Any) -> Tensor:
        """Vectors ``(N, D)`` of N values: an array, or a mapping of arrays."""
        try:
            chosen = self._select(values)
            if self.encoder is None:
                return _flatten(self.space, chosen)
        except (RuntimeError, ValueError, TypeError, LookupError) as error:
            raise ValueError(
                f"the {self.name}s are no batch of values of {self.space}: {error}"
            ) from error
        with torch.no_grad():
            if isinstance(chosen, Mapping):
                batch: Any = {name: torch.as_tensor(value) for name, value in chosen.items()}
            else:
                batch = torch.as_tensor(chosen)
            vectors = self.encoder(batch).detach().float()
        if vectors.ndim != 2:
            raise ValueError(
                f"the encoder returned shape {tuple(vectors.shape)} for a batch of {self.name}s; "
                "expected (N, D): one vector for each."
            )
        return vectors


def action_flattener(
    bonus: IntrinsicReward, space: spaces.Space[Any], stride: int = 1
) -> SpaceFlattener | None:
    """The flattener of actions for a bonus; None if the bonus does not use actions.

    Args:
        bonus: Its ``action_dim`` and ``discrete`` are set from the space if they are None.
        space: Space of one action.
        stride: Environment steps whose actions are summed; sums are not discrete.
    """
    if getattr(bonus, "encoder", None) is not None:
        raise ValueError(
            "the bonus has an encoder of its own: give encoder=... to the wrapper instead, which "
            "encodes each observation once, not once a window."
        )
    learner: Any = bonus
    unknown = getattr(bonus, "uses_actions", False) and learner.action_dim is None
    if not unknown and getattr(bonus, "action_dim", None) is None:
        return None
    flatten = SpaceFlattener(space, name="action")
    size = spaces.flatdim(space)
    if unknown:
        learner.action_dim = size
    if size != learner.action_dim:
        raise ValueError(
            f"the bonus has action_dim={learner.action_dim}, but an action of {space} has {size} "
            f"dimensions (discrete ones are one-hot): make the bonus with action_dim={size}."
        )
    if getattr(bonus, "discrete", False) is None:
        learner.discrete = isinstance(space, spaces.Discrete) and stride == 1
    return flatten


def action_bounds(space: spaces.Space[Any]) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds ``(D,)`` of flattened actions."""
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)  # spaces that can be flattened have a fixed size
    return torch.from_numpy(flat.low).float(), torch.from_numpy(flat.high).float()


def stack(values: Sequence[Any]) -> Any:
    """A batch of single values: an array, or a mapping or tuple of batches."""
    first = values[0]
    if isinstance(first, Mapping):
        return {key: stack([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(stack(parts) for parts in zip(*values, strict=True))
    return np.stack([np.asarray(value) for value in values])


def _parts(space: spaces.Space[Any]) -> list[tuple[Any, spaces.Space[Any]]] | None:
    """The parts of a Dict or a Tuple by key or index; None for other spaces."""
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return list(enumerate(space.spaces))
    return None


def _require_flat(space: spaces.Space[Any], name: str) -> None:
    """Raises ValueError for images and for spaces without a fixed size."""
    parts = _parts(space)
    if parts is not None:
        for key, part in parts:
            _require_flat(part, f"{name}[{key!r}]")
        return
    is_action = name.startswith("action")
    if isinstance(space, spaces.Box) and (len(space.shape) < 3 or is_action):
        return
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return
    if is_action:
        raise ValueError(
            f"the {name} space {space} cannot be flattened: turn it into a Box or a Discrete with "
            "gymnasium.wrappers.TransformAction, or choose a bonus that sees no actions (RND, "
            "PseudoCount, MIMEx without action_dim)."
        )
    what = "looks like an image" if isinstance(space, spaces.Box) else "cannot be flattened"
    raise ValueError(
        f"the {name} space {space} {what}: give encoder=..., a function from a batch of "
        "observations to features (N, D); of a Dict you can choose one entry by view=..."
    )


def _flatten(space: spaces.Space[Any], values: Any) -> Tensor:
    parts = _parts(space)
    if parts is not None:
        return torch.cat([_flatten(part, values[key]) for key, part in parts], dim=1)
    batch = torch.as_tensor(values)
    if batch.is_complex():
        raise ValueError("observations have complex numbers; expected real ones.")
    if isinstance(space, spaces.Discrete):
        return one_hot(batch.reshape(-1).long() - int(space.start), int(space.n)).float()
    batch = batch.reshape(len(batch), -1)
    if isinstance(space, spaces.MultiDiscrete):
        sizes, starts = space.nvec.reshape(-1), space.start.reshape(-1)
        codes = [
            one_hot(batch[:, i].long() - int(starts[i]), int(size)) for i, size in enumerate(sizes)
        ]
        return torch.cat(codes, dim=1).float()
    return batch.float()
