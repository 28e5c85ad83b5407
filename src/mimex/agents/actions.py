"""Conversion of actions for the environments, and action distributions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from mimex.types import Metrics


class ActionAdapter:
    """Converts an agent's actions to the environments' format.

    For a bounded Box, the agent's range [-1, 1] is scaled to the bounds, and actions beyond it are
    clipped. With an infinite bound, actions are passed on unchanged. Discrete actions are one-hot
    codes; those of a MultiDiscrete or MultiBinary are concatenated.

    Attributes:
        size: Dimensions of the agent's actions.
        sizes: Size of each one-hot code; empty for a Box.
        discrete: Whether actions are one-hot codes.

    Args:
        space: The single action space.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self._dtype, self._start, self._shape = space.dtype, torch.tensor(0), space.shape or ()
        self.sizes: tuple[int, ...] = ()
        self._clipped = False
        self._bounds: Tensor | None = None  # (2, size) low and high, unless they are -1 and 1
        if isinstance(space, spaces.Discrete):
            self.sizes, self._start = (int(space.n),), torch.tensor([int(space.start)])
        elif isinstance(space, spaces.MultiDiscrete):
            self.sizes = tuple(space.nvec.ravel().tolist())
            self._start = torch.from_numpy(space.start.ravel())
        elif isinstance(space, spaces.MultiBinary):
            self.sizes = (2,) * math.prod(space.shape)
        elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            bounds = np.stack([space.low.ravel(), space.high.ravel()])
            self._clipped = bool(np.isfinite(bounds).all())
            if self._clipped and (bounds != [[-1.0], [1.0]]).any():
                self._bounds = torch.from_numpy(bounds)
        else:
            raise ValueError(
                f"the action space is {space}, but agents support a Box of floats, Discrete, "
                "MultiDiscrete or MultiBinary: register the task in gymnasium.wrappers."
                "TransformAction(env, func, action_space), where action_space is one of these and "
                "func converts its actions to the task's own"
            )
        self.discrete = bool(self.sizes)
        self.size = sum(self.sizes) if self.discrete else math.prod(self._shape)

    def __call__(self, actions: Tensor) -> NDArray[Any]:
        """Actions ``(B, size)`` in the environments' format."""
        return self.tensors(actions).cpu().numpy().astype(self._dtype, copy=False)

    def clipped(self, actions: Tensor) -> Tensor:
        """Clips actions ``(..., size)`` as for the environments, in the agent's units."""
        return actions.clip(-1.0, 1.0) if self._clipped else actions

    def tensors(self, actions: Tensor) -> Tensor:
        """Like ``__call__``, as tensors on the actions' device."""
        if self.discrete:
            chosen = [code.argmax(1) for code in actions.split_with_sizes(self.sizes, 1)]
            values = torch.stack(chosen, 1) + self._start.to(actions.device)
            return values.reshape(len(actions), *self._shape)
        actions = self.clipped(actions)
        if self._bounds is not None:
            low, high = self._bounds.to(actions.device)
            actions = low + (actions + 1) * 0.5 * (high - low)
        return actions.reshape(len(actions), *self._shape)


class Gaussian(nn.Module):
    """A diagonal Gaussian with a state-independent standard deviation.

    Args:
        size: Dimensions of an action.
        initial_std: Initial standard deviation.
        min_std: Lower bound of the standard deviation.
    """

    def __init__(self, size: int, initial_std: float, min_std: float) -> None:
        super().__init__()
        self.size, self.min_std = size, min_std
        self.log_std = nn.Parameter(torch.full((size,), math.log(initial_std)))

    def sample(self, outputs: Tensor, generator: Generator) -> Tensor:
        """Samples an action for each row of means ``(B, A)``."""
        noise = torch.randn(outputs.shape, generator=generator, device=outputs.device)
        return torch.addcmul(outputs, noise, self.log_std.exp())

    def mode(self, outputs: Tensor) -> Tensor:
        """The most likely action of each row."""
        return outputs

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probabilities ``(B,)`` of actions."""
        z = (actions - outputs) * (-self.log_std).exp()
        constant = 0.5 * self.size * math.log(2 * math.pi)
        return -0.5 * z.square().sum(1) - (self.log_std.sum() + constant)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropies ``(B,)``."""
        each = self.log_std.sum() + 0.5 * self.size * (1 + math.log(2 * math.pi))
        return each.expand(len(outputs))

    @torch.no_grad()
    def keep_floor(self) -> None:
        """Clamps the standard deviation to its lower bound."""
        if self.min_std > 0:
            self.log_std.clamp_(min=math.log(self.min_std))

    def metrics(self) -> Metrics:
        """The mean standard deviation."""
        return {"ppo/std": float(self.log_std.detach().exp().mean())}


class Categorical(nn.Module):
    """Independent categorical distributions; actions are concatenated one-hot codes.

    Args:
        sizes: Number of categories of each.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = list(sizes)

    def sample(self, outputs: Tensor, generator: Generator) -> Tensor:
        """Samples an action for each row of logits ``(B, sum(sizes))``."""
        drawn = (
            torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
            for logits in outputs.split_with_sizes(self.sizes, 1)
        )
        return self._codes(drawn).to(outputs.dtype)

    def mode(self, outputs: Tensor) -> Tensor:
        chosen = (logits.argmax(1) for logits in outputs.split_with_sizes(self.sizes, 1))
        return self._codes(chosen).to(outputs.dtype)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return (self._logs(outputs) * actions).sum(1)

    def entropy(self, outputs: Tensor) -> Tensor:
        logs = self._logs(outputs)
        return -(logs.exp() * logs).sum(1)

    def _codes(self, chosen: Iterable[Tensor]) -> Tensor:
        each = zip(chosen, self.sizes, strict=True)
        return torch.cat([nn.functional.one_hot(values, size) for values, size in each], 1)

    def _logs(self, outputs: Tensor) -> Tensor:
        return torch.cat(
            [logits.log_softmax(1) for logits in outputs.split_with_sizes(self.sizes, 1)], 1
        )

    def keep_floor(self) -> None:
        """Does nothing: there is no standard deviation."""

    def metrics(self) -> Metrics:
        return {}


def distribution_for(
    actions: ActionAdapter, initial_std: float, min_std: float
) -> Gaussian | Categorical:
    """Builds the action distribution for an action space."""
    if actions.discrete:
        return Categorical(actions.sizes)
    return Gaussian(actions.size, initial_std, min_std)
