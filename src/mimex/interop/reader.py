"""From the values of a Gymnasium space to rows of numbers, which is what windows are made of."""

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

Key = str | Sequence[str] | None
"""Of Dict observations, what to look at: one entry, several, or (None) all."""


class SpaceReader:
    """Turns a batch of a space's values into rows of numbers ``(N, D)``.

    Boxes are flattened, discrete values become one-hot codes, the entries of a Dict are put side
    by side in the order of its keys.

    Args:
        space: The space of ONE value.
        key: For Dict spaces: the entry to read, or several of them. All when left out.
        encoder: Gets the batch as tensors, as the environment gives it (a dict of them where
            ``space`` is a Dict, unless ``key`` is one entry), and makes the rows. For images.
        name: What the values are, for error messages.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        *,
        key: Key = None,
        encoder: Encoder | None = None,
        name: str = "observation",
    ) -> None:
        if key is not None:
            keys = (key,) if isinstance(key, str) else tuple(key)
            if not isinstance(space, spaces.Dict) or not set(keys) <= set(space.spaces):
                raise ValueError(
                    f"key={key!r} is no entry of the {name} space {space}: give one of its keys or "
                    "several, or leave key out."
                )
            chosen = {name: space.spaces[name] for name in keys}
            space = chosen[key] if isinstance(key, str) else spaces.Dict(chosen)
        if encoder is None:
            _require_readable(space, name)
        self.space, self.key, self.encoder, self.name = space, key, encoder, name

    def __call__(self, values: Any) -> Tensor:
        """Rows ``(N, D)`` of a batch of N values: an array, or a mapping of arrays."""
        chosen = values
        if isinstance(self.key, str):
            chosen = values[self.key]
        elif self.key is not None:
            chosen = {name: values[name] for name in self.key}
        if self.encoder is None:
            try:
                return _rows(self.space, chosen)
            except (RuntimeError, ValueError, TypeError, LookupError) as error:
                raise ValueError(
                    f"the {self.name}s are no batch of values of {self.space}: {error}"
                ) from error
        with torch.no_grad():
            if isinstance(chosen, Mapping):
                batch: Any = {name: torch.as_tensor(value) for name, value in chosen.items()}
            else:
                batch = torch.as_tensor(chosen)
            rows = self.encoder(batch).detach().float()
        if rows.ndim != 2:
            raise ValueError(
                f"the encoder made {tuple(rows.shape)} of a batch of {self.name}s; expected "
                "(N, D): one row of numbers for each."
            )
        return rows

    def each(self, values: Sequence[Any]) -> Tensor:
        """Rows of single values, which may be mappings."""
        if isinstance(values[0], Mapping):
            return self({name: _stack([v[name] for v in values]) for name in values[0]})
        return self(_stack(values))


def action_reader(
    bonus: IntrinsicReward, space: spaces.Space[Any], stride: int = 1
) -> SpaceReader | None:
    """Reads the actions of a space as this bonus wants them; None if it wants none.

    Args:
        bonus: Is given the number of actions, and whether they are discrete, if it has neither.
        space: Of one action.
        stride: Steps whose actions are summed: sums of discrete ones are not discrete.
    """
    if getattr(bonus, "encoder", None) is not None:
        raise ValueError(
            "the bonus has an encoder of its own: give encoder=... to the wrapper instead, which "
            "encodes each observation once, not once a window."
        )
    found = spaces.flatdim(space)
    learner: Any = bonus
    if getattr(bonus, "uses_actions", False) and learner.action_dim is None:
        learner.action_dim = found
    wanted = getattr(bonus, "action_dim", None)
    if wanted is None:
        return None
    reader = SpaceReader(space, name="action")
    if found != wanted:
        raise ValueError(
            f"the bonus has action_dim={wanted}, but an action of {space} is {found} numbers "
            f"(discrete ones are one-hot): make the bonus with action_dim={found}."
        )
    if getattr(bonus, "discrete", False) is None:
        learner.discrete = isinstance(space, spaces.Discrete) and stride == 1
    return reader


def action_bounds(space: spaces.Space[Any]) -> tuple[Tensor, Tensor]:
    """The least and the greatest row ``(D,)`` that an action of a space can be read as."""
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)  # readable spaces have a fixed number of dimensions
    return torch.from_numpy(flat.low).float(), torch.from_numpy(flat.high).float()


def _stack(values: Sequence[Any]) -> Any:
    return np.stack([np.asarray(value) for value in values])


def _require_readable(space: spaces.Space[Any], name: str) -> None:
    if isinstance(space, spaces.Dict):
        for key, entry in space.spaces.items():
            _require_readable(entry, f"{name}[{key!r}]")
        return
    if isinstance(space, spaces.Box) and len(space.shape) < 3:
        return
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return
    what = "looks like an image" if isinstance(space, spaces.Box) else "cannot be flattened"
    raise ValueError(
        f"the {name} space {space} {what}: give encoder=..., a function from a batch of "
        "observations to features (N, D); of a Dict you can choose one entry by key=..."
    )


def _rows(space: spaces.Space[Any], values: Any) -> Tensor:
    if isinstance(space, spaces.Dict):
        return torch.cat([_rows(part, values[key]) for key, part in space.spaces.items()], dim=1)
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
