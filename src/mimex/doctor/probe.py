"""A probe environment whose observations say who they are, and a bonus that notes what it sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from mimex.types import Metrics, Window

EPISODE_LENGTHS = (6, 3, 1, 9, 2)
"""Steps of the probe's episodes, in turn: longer and shorter than a window, and one step only."""

WINDOW_LENGTH = 5
"""Steps a window of the bonus that notes; the paper's length."""

FIELDS = 3
"""Numbers of an observation before its action: environment, episode, step."""

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]


class ProbeEnv(gymnasium.Env[Any, Any]):
    """An environment whose observation is ``(environment, episode, step, action that led here)``.

    Episodes of odd number are truncated, the others terminate. There is no reward but the bonus.

    Args:
        number: Which environment it is.
        action_space: Of any kind that can be flattened.
    """

    def __init__(self, number: int = 0, action_space: spaces.Space[Any] | None = None) -> None:
        self.action_space = action_space or spaces.Discrete(3)
        width = FIELDS + spaces.flatdim(self.action_space)
        self.observation_space = spaces.Box(-np.inf, np.inf, (width,), np.float32)
        self.number, self.episode, self.step_number = number, -1, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.step_number = self.episode + 1, 0
        return self._observation(None), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        over = self.step_number >= EPISODE_LENGTHS[self.episode % len(EPISODE_LENGTHS)]
        truncated = over and self.episode % 2 == 1
        return self._observation(action), 0.0, over and not truncated, truncated, {}

    def _observation(self, action: Any) -> np.ndarray[Any, Any]:
        led = np.zeros(spaces.flatdim(self.action_space))
        if action is not None:
            led = np.asarray(spaces.flatten(self.action_space, action))
        return np.array([self.number, self.episode, self.step_number, *led], dtype=np.float32)


def probe_factory(action_space: spaces.Space[Any] | None = None) -> MakeEnv:
    """A function that makes probe environments, each with the next number."""
    made = 0

    def make() -> ProbeEnv:
        nonlocal made
        made += 1
        return ProbeEnv(made - 1, action_space)

    return make


def signature(episodes: Tensor, steps: Tensor) -> Tensor:
    """A number in [1, 2) for each step of each episode, without likeness between neighbours."""
    return 1 + (43758.5453 * torch.sin(12.9898 * steps.double() + 78.233 * episodes.double())) % 1


class NotingBonus:
    """Pays what it is told to, and keeps every window that it was asked about.

    Args:
        action_dim: Numbers of the flattened action space.
        pay: The reward of each window; ``signature`` of its newest step when left out.
    """

    def __init__(self, action_dim: int, pay: Callable[[Window], Tensor] | None = None) -> None:
        self.length, self.action_dim = WINDOW_LENGTH, action_dim
        self.windows: list[Window] = []
        self._pay = pay or (lambda w: signature(w.features[:, -1, 1], w.features[:, -1, 2]))

    def reward(self, window: Window) -> Tensor:
        """What it was told to pay."""
        self.windows.append(window)
        return self._pay(window).float()

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """What it was told to pay; nothing is learned."""
        return self.reward(window), {}

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {"kind": "NotingBonus"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing."""
