"""Restarts: some episodes begin at states from which the agent has found reward before.

Novelty leads an agent to a sparse reward once in hundreds of episodes, and the next updates can
lose it again. Restarts keep what was found. While an episode runs, its states are saved every few
steps. When an episode that began normally receives its first positive reward, some of the states on
the way there enter an archive, and a share of the following episodes begins at one of them.

Episodes that themselves began at an archived state add nothing to the archive: it would fill up
with states next to the reward, and episodes with normal starts would forget how to get there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from mimex.contracts import Restorable, Step
from mimex.types import Metrics

FADE = 0.9
"""Weight of earlier tries from an archived state when a new one is added."""

LEAST_WEIGHT = 0.05
"""Weight with which states are drawn whose restarts always, or never, receive reward."""

Array = NDArray[Any]


@dataclass(frozen=True)
class RestartSettings:
    """Restarts from the agent's own states on the way to a reward."""

    share: float = 0.0
    """Fraction of training episodes that start from an archived state; 0 to disable. Needs
    environments that can restore their state: PixMC-Sparse, dmc/ and gym/mimex/."""
    capacity: int = 4000
    """Maximum number of archived states; new ones then replace random ones."""
    per_episode: int = 16
    """States archived per rewarded episode."""
    reach: int = 240
    """Maximum steps from an archived state to the first reward."""
    every: int = 4
    """Steps between saved states of an episode."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ValueError(f"restarts.share is {self.share}, but must be in [0, 1).")
        for name in ("capacity", "per_episode", "reach", "every"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"restarts.{name} is {value}, but must be at least 1.")


class Restarts:
    """The archive, and the states of running episodes that may enter it.

    An archived state is drawn with weight ``4 p (1 - p) + 0.05``, where p is the share of recent
    restarts from it that received reward: states from which success is uncertain teach most.

    Args:
        env: Environments that can restore their state.
        settings: Of the restarts.
        task: The task's name, for an error.
        seed: Of all that is drawn here.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], settings: RestartSettings, task: str, seed: int
    ) -> None:
        simulation: Any = env.unwrapped
        if not isinstance(simulation, Restorable):
            raise ValueError(
                f"--restarts.share is {settings.share}, but {task} cannot restore its state: use "
                "--restarts.share 0, or a task of PixMC-Sparse, dmc/ or gym/mimex/."
            )
        self.env, self.settings = simulation, settings
        self.generator = np.random.default_rng(seed)
        num_envs = env.num_envs
        self._time = 0  # steps of each environment so far
        self._saved: dict[str, Array] = {}  # (slots, N, ...) by name: states of running episodes
        self._saved_at = np.full(max(1, settings.reach // settings.every), -1)  # time of each slot
        self._began = np.zeros(num_envs, np.int64)  # when each running episode began
        self._rewarded = np.zeros(num_envs, bool)  # it has received positive reward
        self._source = np.full(num_envs, -1)  # number of the state it began at; -1: a normal start
        self._archive: dict[str, Array] = {}  # (capacity, ...) by name
        self._numbers = np.full(settings.capacity, -1)  # of the archived states, never used twice
        self._tries = np.zeros((settings.capacity, 2))  # restarts from each, and those rewarded
        self._size = 0
        self._next_number = 0

    def __len__(self) -> int:
        return self._size

    def begin(self) -> None:
        """New episodes begin in all environments, all with normal starts."""
        self._began[:] = self._time
        self._rewarded[:] = False
        self._source[:] = -1

    def step(self, step: Step) -> Step:
        """Takes in a step, and begins some of the new episodes at archived states."""
        self._time += 1
        restarted = self._source >= 0
        rewarded = _array(step.rewards) > 0
        for env in np.flatnonzero(rewarded & ~self._rewarded & ~restarted):
            self._keep(int(env))
        self._rewarded |= rewarded
        ended = np.flatnonzero(_array(step.ended))
        observation = step.next_observation
        if len(ended):
            self._note_outcomes(ended)
            self._began[ended], self._rewarded[ended] = self._time, False
            self._source[ended] = -1
            observation = self._restart(ended, observation)
        if self._time % self.settings.every == 0:
            self._save()
        return step._replace(next_observation=observation, restarted=restarted)

    def _save(self) -> None:
        """Saves the state of every running episode."""
        slots = len(self._saved_at)
        slot = self._time // self.settings.every % slots
        for name, values in self.env.snapshot().items():
            if name not in self._saved:
                self._saved[name] = np.zeros((slots, *values.shape), values.dtype)
            self._saved[name][slot] = values
        self._saved_at[slot] = self._time

    def _keep(self, env: int) -> None:
        """Archives states on an episode's way to its first reward."""
        slots = np.flatnonzero(self._saved_at >= self._began[env])
        slots = slots[self._saved_at[slots] >= self._time - self.settings.reach]
        if not len(slots):
            return
        capacity, most = self.settings.capacity, self.settings.per_episode
        chosen = self.generator.permutation(slots)[: min(most, capacity)]
        places = self._size + np.arange(len(chosen))  # the free ones first, then random ones
        full = places >= capacity
        places[full] = self.generator.choice(self._size, full.sum(), replace=False)
        for name, values in self._saved.items():
            if name not in self._archive:
                self._archive[name] = np.zeros((capacity, *values.shape[2:]), values.dtype)
            self._archive[name][places] = values[chosen, env]
        self._numbers[places] = self._next_number + np.arange(len(chosen))
        self._tries[places] = 0.0
        self._next_number += len(chosen)
        self._size = min(capacity, self._size + len(chosen))

    def _note_outcomes(self, ended: Array) -> None:
        """Counts whether restarted episodes that ended received reward."""
        for env in ended[self._source[ended] >= 0]:
            for place in np.flatnonzero(self._numbers == self._source[env]):
                self._tries[place] = FADE * self._tries[place] + (1.0, self._rewarded[env])

    def _restart(self, ended: Array, observation: Any) -> Any:
        """Begins some of the new episodes at archived states; returns all observations."""
        drawn = self.generator.random(len(ended)) < self.settings.share
        rows = ended[drawn].astype(np.int32)
        if not len(self) or not len(rows):
            return observation
        places = self.generator.choice(len(self), len(rows), p=self._weights())
        self._source[rows] = self._numbers[places]
        states = {name: values[places] for name, values in self._archive.items()}
        return _with_rows(observation, rows, self.env.restore(rows, states))

    def _weights(self) -> Array:
        tries, rewarded = self._tries[: self._size].T
        p = (rewarded + 0.5) / (tries + 1.0)
        weights = 4 * p * (1 - p) + LEAST_WEIGHT
        found: Array = weights / weights.sum()
        return found

    def metrics(self) -> Metrics:
        """The size of the archive, and the mean share of restarts that receive reward."""
        tries, rewarded = self._tries.sum(0)
        return {
            "restart/archive": float(len(self)),
            "restart/rewarded": float(rewarded / max(tries, 1e-12)),
        }

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
        return {
            "time": self._time,
            "size": self._size,
            "next_number": self._next_number,
            "saved": {name: values.copy() for name, values in self._saved.items()},
            "archive": {name: values.copy() for name, values in self._archive.items()},
            **{name: getattr(self, f"_{name}").copy() for name in _ARRAYS},
            "generator": self.generator.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        self._time, self._size = int(state["time"]), int(state["size"])
        self._next_number = int(state["next_number"])
        self._saved = {name: np.array(values) for name, values in state["saved"].items()}
        self._archive = {name: np.array(values) for name, values in state["archive"].items()}
        for name in _ARRAYS:
            setattr(self, f"_{name}", np.array(state[name]))
        self.generator.bit_generator.state = state["generator"]


_ARRAYS = ("saved_at", "began", "rewarded", "source", "numbers", "tries")


def _array(values: Any) -> Array:
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _with_rows(observation: Any, rows: Array, new: Any) -> Any:
    """A copy of a batch of observations with some rows replaced."""
    if isinstance(observation, dict):
        return {name: _with_rows(part, rows, new[name]) for name, part in observation.items()}
    if isinstance(observation, Tensor):
        changed = observation.clone()
        changed[torch.as_tensor(rows.astype(np.int64))] = torch.as_tensor(new).to(changed)
        return changed
    replaced = np.array(observation)
    replaced[rows] = new
    return replaced
