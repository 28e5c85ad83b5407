"""Where an off-policy agent was of late, and how novel that is to its bonus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mimex.agents.drqv2 import DrQv2
from mimex.bonus.base import IntrinsicReward
from mimex.data.replay import ReplayBuffer
from mimex.nn.parallel import in_order, pieces
from mimex.train.films import WINDOWS, films
from mimex.train.novelty import NoveltyMap, write_record
from mimex.train.planes import PrincipalPlane
from mimex.types import Window

SEEN_AT_ONCE = 16
"""Observations that are encoded in one piece, as in DrQ-v2's updates."""

PICTURES_EVERY = 8
"""Of steps with pictures one in so many is scored: to encode them all would cost some percent."""


class Visits:
    """Notes states step by step, and maps them with their bonus, a stretch at a time.

    Windows are taken from the replay buffer when a stretch ends; only where they end is noted.

    Args:
        replay: Where the observations are.
        agent: Whose features the bonus sees.
        bonus: What scores them.
    """

    def __init__(self, replay: ReplayBuffer, agent: DrQv2, bonus: IntrinsicReward) -> None:
        self.replay, self.agent, self.bonus = replay, agent, bonus
        self._every = PICTURES_EVERY if agent.pixels else 1
        plane = PrincipalPlane()
        plane.first_places //= self._every  # fitted to as early a part of the run
        self.map = NoveltyMap(plane)
        self._states: list[NDArray[Any]] = []  # (N, D) each
        self._numbers: list[list[int]] = []  # of the observations, one for each environment
        self._newest: Window | None = None  # the most novel windows of the last stretch

    def due(self, round_number: int) -> bool:
        """Whether this round of steps is one of those that are noted."""
        return round_number % self._every == 0

    def note(self, states: NDArray[Any]) -> None:
        """Takes in the states ``(N, D)`` that the newest observations in the buffer are of."""
        self._states.append(np.array(states, np.float32))
        self._numbers.append([added - 1 for added in self.replay.added])

    def forget(self) -> None:
        """Drops what was noted since the last stretch, whose observations are gone."""
        self._states, self._numbers = [], []

    def map_stretch(self) -> None:
        """Scores what was noted since the last time, and maps it."""
        if not self._states:
            return
        states = np.concatenate(self._states)  # (n * N, D)
        numbers = torch.tensor(self._numbers)  # (n, N)
        envs = torch.arange(self.replay.num_envs).expand_as(numbers)
        self._states, self._numbers = [], []
        scores = torch.zeros(len(states))
        if self.replay.window:
            window = self._window(envs.flatten(), numbers.flatten())
            scores = self.bonus.reward(window)
            full = window.valid.all(dim=1)
            most = scores.masked_fill(~full, -torch.inf).topk(min(WINDOWS, len(scores))).indices
            self._newest = chosen_windows(window, most)
        self.map.visit(states, scores.numpy())

    def _window(self, envs: Tensor, numbers: Tensor) -> Window:
        found = self.replay.windows_at(envs, numbers)
        rows = pieces(torch.arange(len(found.others)), SEEN_AT_ONCE)
        seen = in_order(lambda some: self.agent.see(found.others[some]), rows)
        features = torch.cat(seen)[found.places]
        features[~found.valid] = 0.0
        return Window(features, found.valid, found.actions)

    def record(self, run: Path, step: int, probe: Window | None) -> None:
        """Writes the map and the film strips since the last record into the run folder."""
        strips = films(self.bonus, {"first": probe, "newest": self._newest})
        write_record(run, step, self.map, strips)

    def state_dict(self) -> dict[str, Any]:
        """The map, and what was noted since the last stretch."""
        return {
            "map": self.map.state_dict(),
            "states": list(self._states),
            "numbers": [list(row) for row in self._numbers],
            "newest": None if self._newest is None else vars(self._newest),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self.map.load_state_dict(state["map"])
        self._states = [np.asarray(states) for states in state["states"]]
        self._numbers = [list(row) for row in state["numbers"]]
        self._newest = None if state["newest"] is None else Window(**state["newest"])


def chosen_windows(window: Window, rows: Tensor | slice) -> Window:
    """Some of a batch of windows, apart from it."""
    actions = None if window.actions is None else window.actions[rows].clone()
    return Window(window.features[rows].clone(), window.valid[rows].clone(), actions)
