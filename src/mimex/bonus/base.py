"""The interface of intrinsic rewards, and two trivial ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from mimex.types import Metrics, Window


class IntrinsicReward(Protocol):
    """An intrinsic reward (bonus) computed from windows of a trajectory."""

    @property
    def length(self) -> int:
        """Window length."""

    def reward(self, window: Window) -> Tensor:
        """Scores each window ``(B,)``; changes nothing, and is deterministic."""

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """Scores each window, then takes one optimizer step.

        Args:
            window: The windows.
            train_fraction: Random fraction of the windows to train on.

        Returns:
            The rewards ``(B,)`` with the weights from before the step, and metrics.
        """

    def state_dict(self) -> dict[str, Any]:
        """The complete state: nested dicts of tensors, numbers and strings."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``; if it does not fit, ValueError, and nothing changes."""


@runtime_checkable
class EpisodicReward(IntrinsicReward, Protocol):
    """A bonus that depends on the whole episode so far, not on the window alone.

    The training loop calls ``follow`` once per step, in order. ``reward`` scores a window as if
    the episode started with it; ``learn`` trains. The episodes are part of ``state_dict``.
    """

    def follow(self, window: Window, starts: Tensor, envs: Tensor | None = None) -> Tensor:
        """Scores one step of each environment ``(B,)`` and adds it to the episode so far.

        Args:
            window: One window per environment.
            starts: ``(B,)`` bool: the step is the first of its episode.
            envs: ``(B,)`` indices of the environments; the first B if None.
        """


def require_no_episode(bonus: IntrinsicReward, where: str) -> None:
    """Raises ValueError for an episodic bonus where ``follow`` cannot be called.

    Args:
        bonus: The bonus.
        where: Its use, for the message.
    """
    if isinstance(bonus, EpisodicReward):
        raise ValueError(
            f"{type(bonus).__name__} needs its episode's whole past, step by step, which "
            f"{where} does not have: use it on-policy (mimex train with ppo, mimex.wrap, "
            "mimex.wrap_vector, BonusVecEnv), or choose another bonus."
        )


class ConstantBonus:
    """Rewards every step with 1: a control that separates survival from exploration.

    Any positive bonus makes an agent prolong its episodes; only what a bonus achieves beyond this
    one is exploration.
    """

    length, value = 1, 1.0

    def reward(self, window: Window) -> Tensor:
        """The constant, for each window."""
        return torch.full((len(window),), self.value, device=window.features.device)

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """The constant, for each window; nothing is learned."""
        return self.reward(window), {"bonus/mean": self.value}

    def state_dict(self) -> dict[str, Any]:
        """The class name."""
        return {"kind": type(self).__name__}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Checks the class name."""
        kind = type(self).__name__
        if state.get("kind") != kind:
            raise ValueError(f"this is the state of a {state.get('kind')!r}, not of a {kind!r}.")


class NoBonus(ConstantBonus):
    """No reward: the baseline that explores by the policy's action noise alone."""

    value = 0.0
