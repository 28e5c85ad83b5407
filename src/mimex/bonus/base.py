"""What an intrinsic reward is to the rest of the world, and two that look at nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from mimex.types import Metrics, Window


class IntrinsicReward(Protocol):
    """A bonus for novelty. It looks at windows of a trajectory and at nothing else."""

    @property
    def length(self) -> int:
        """How many steps a window must have."""

    def reward(self, window: Window) -> Tensor:
        """Scores each window: ``(B,)``. Nothing is changed, and the same window scores the same."""

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """Scores each window, then takes one step of learning from them.

        Args:
            window: The windows.
            train_fraction: The share of the windows, chosen at random, that is learned from.

        Returns:
            The rewards ``(B,)`` as they were before the step, and metrics.
        """

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue: tensors, numbers and strings in nested dicts."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""


@runtime_checkable
class EpisodicReward(IntrinsicReward, Protocol):
    """A bonus that depends on the whole episode so far, beyond what a window holds of it.

    It keeps what it needs of each environment's episode. Whoever steps environments calls
    ``follow`` once for every step, in their order; ``reward`` scores a window as if its episode had
    begun with it, and ``learn`` trains. The episode so far is part of ``state_dict``.
    """

    def follow(self, window: Window, starts: Tensor, envs: Tensor | None = None) -> Tensor:
        """Scores one step of each environment ``(B,)``, and takes it into the episode so far.

        Args:
            window: One window of each environment.
            starts: ``(B,)`` bool: the step is the first of its episode.
            envs: ``(B,)`` whole numbers: the environments that the windows are of; when left out,
                the first B.
        """


def require_no_episode(bonus: IntrinsicReward, where: str) -> None:
    """Refuses a bonus that needs its episode's whole past where nobody can tell it.

    Args:
        bonus: Any.
        where: What it was to be used for.
    """
    if isinstance(bonus, EpisodicReward):
        raise ValueError(
            f"{type(bonus).__name__} needs its episode's whole past, step by step, which "
            f"{where} does not have: use it on-policy (mimex train with ppo, mimex.wrap, "
            "mimex.wrap_vector, BonusVecEnv), or choose another bonus."
        )


class ConstantBonus:
    """Pays 1 for every step: the control that tells survival from exploration.

    Any positive bonus makes an agent go on where it would else end its episodes; only what a bonus
    finds beyond this one's is exploration.
    """

    length, value = 1, 1.0

    def reward(self, window: Window) -> Tensor:
        """The same for every window."""
        return torch.full((len(window),), self.value, device=window.features.device)

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """The same for every window, and nothing learned."""
        return self.reward(window), {"bonus/mean": self.value}

    def state_dict(self) -> dict[str, Any]:
        """Nothing but the name."""
        return {"kind": type(self).__name__}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Checks the name."""
        kind = type(self).__name__
        if state.get("kind") != kind:
            raise ValueError(f"this is the state of a {state.get('kind')!r}, not of a {kind!r}.")


class NoBonus(ConstantBonus):
    """Pays nothing: the baseline that explores by the policy's own noise."""

    value = 0.0
