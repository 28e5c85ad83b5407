"""A probe environment whose observations say who they are, and a bonus that notes what it sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from mimex.types import Metrics, Window

CODES = (4, 400, 10)
"""Environments, episodes and steps that a discrete observation of the probe tells apart."""

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
        like: The observation space of the set-up's own environment. Of a Dict all vectors become
            the observation, a Discrete becomes a code of it (without the action), a picture is a
            picture whose first pixels say it. Anything else is a vector.
    """

    def __init__(
        self,
        number: int = 0,
        action_space: spaces.Space[Any] | None = None,
        like: spaces.Space[Any] | None = None,
    ) -> None:
        self.action_space = action_space or spaces.Discrete(3)
        self._width = FIELDS + spaces.flatdim(self.action_space)
        self.observation_space = self._space(like)
        self.number, self.episode, self.step_number = number, -1, 0

    def _space(self, like: spaces.Space[Any] | None) -> spaces.Space[Any]:
        if isinstance(like, spaces.Dict):
            return spaces.Dict({key: self._space(part) for key, part in like.spaces.items()})
        if isinstance(like, spaces.Discrete):
            return spaces.Discrete(math.prod(CODES))
        if isinstance(like, spaces.Box) and len(like.shape) == 3:
            return like
        return spaces.Box(-np.inf, np.inf, (self._width,), np.float32)

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

    def _observation(self, action: Any) -> Any:
        led = np.zeros(self._width - FIELDS)
        if action is not None:
            led = np.asarray(spaces.flatten(self.action_space, action))
        vector = np.array([self.number, self.episode, self.step_number, *led], dtype=np.float32)
        return self._as(self.observation_space, vector)

    def _as(self, space: spaces.Space[Any], vector: np.ndarray[Any, Any]) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._as(part, vector) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Discrete):
            return int(np.ravel_multi_index(vector[:FIELDS].astype(int), CODES, mode="wrap"))
        if isinstance(space, spaces.Box) and len(space.shape) == 3:
            picture = np.zeros(space.shape, space.dtype)
            picture.reshape(-1)[: len(vector)] = vector
            return picture
        return vector


def canonical(observations: Tensor, action_dim: int) -> Tensor:
    """Observations or features ``(..., D)`` as the probe's vector, where they can be read as such.

    Vectors that are there several times (of several entries of a Dict) are taken once; codes are
    taken apart, and NaN stands for the action that they do not tell.
    """
    width, size = FIELDS + action_dim, observations.shape[-1]
    if size > width and size % width == 0:
        parts = observations.reshape(*observations.shape[:-1], -1, width)
        if bool((parts == parts[..., :1, :]).all()):
            return parts[..., 0, :]
    if size in (1, math.prod(CODES)) and size != width:
        codes = observations.argmax(-1) if size > 1 else observations[..., 0].long()
        fields = np.stack(np.unravel_index(codes.cpu().numpy(), CODES), axis=-1)
        unknown = torch.full((*codes.shape, action_dim), torch.nan)
        return torch.cat([torch.as_tensor(fields).float(), unknown], dim=-1)
    return observations


def probe_factory(
    action_space: spaces.Space[Any] | None = None, like: spaces.Space[Any] | None = None
) -> MakeEnv:
    """A function that makes probe environments, each with the next number."""
    made = 0

    def make() -> ProbeEnv:
        nonlocal made
        made += 1
        return ProbeEnv(made - 1, action_space, like)

    return make


def signature(episodes: Tensor, steps: Tensor, envs: Tensor | float = 0.0) -> Tensor:
    """A number in [1, 2) for each step of each episode, without likeness between neighbours."""
    envs = torch.as_tensor(envs).double()
    phase = 12.9898 * steps.double() + 78.233 * episodes.double() + 37.719 * envs
    return 1 + (43758.5453 * torch.sin(phase)) % 1


class NotingBonus:
    """Keeps every window that it was asked about; its score is a known function of them.

    Args:
        action_dim: Numbers of the flattened action space; None: windows without actions.
        score: The reward of each window; ``signature`` of its newest step when left out.
        length: Steps of a window.
    """

    def __init__(
        self,
        action_dim: int | None,
        score: Callable[[Window], Tensor] | None = None,
        length: int = WINDOW_LENGTH,
    ) -> None:
        self.length, self.action_dim = length, action_dim
        self.windows: list[Window] = []
        self.learned: list[bool] = []  # of each of the windows, whether it was to learn from
        self._score = score or self._signature

    def reward(self, window: Window) -> Tensor:
        """The known score."""
        return self._note(window, learned=False)

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """The known score; nothing is learned."""
        scores = self._note(window, learned=True)
        return scores, {"bonus/mean": float(scores.mean())}

    def _note(self, window: Window, *, learned: bool) -> Tensor:
        self.windows.append(window)
        self.learned.append(learned)
        return self._score(window).float()

    def _signature(self, window: Window) -> Tensor:
        newest = canonical(window.features[:, -1].flatten(1), self.action_dim or 0)[:, :FIELDS]
        if newest.shape[1] < FIELDS:  # an encoder made less of it
            return 1 + newest.sum(1).sin().square()
        return signature(newest[:, 1], newest[:, 2], newest[:, 0])

    def read(self) -> list[Window]:
        """All windows, their features as the probe's vectors where they can be read as such."""
        return [
            Window(canonical(w.features, self.action_dim or 0), w.valid, w.actions)
            if w.features.ndim == 3
            else w
            for w in self.windows
        ]

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {"kind": "NotingBonus"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing."""
