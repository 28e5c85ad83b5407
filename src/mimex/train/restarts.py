"""Restarts: some episodes begin at states from which the agent has found reward before.

Novelty leads an agent to a sparse reward once in hundreds of episodes, and the next updates can
lose it again. Restarts keep what was found. While an episode runs, its states are saved every few
steps. If an episode that began normally received reward, some of its states before the first
reward enter an archive when it ends, and a share of the following episodes begins at one of them.

Normal episodes explore and restarted ones exploit, so the two are kept apart:

- Restarted episodes add nothing to the archive. It would fill up with states next to the reward,
  and normal episodes would forget how to get there.
- They receive no bonus, and the bonus does not train on them (``agents/on_policy.py``). Otherwise
  states that normal episodes have yet to reach would no longer be novel.
- PPO normalizes the advantages of the two separately. Otherwise the large returns of rewarded
  restarts would make the bonus negligible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from mimex.contracts import Restorable, Step, replace_rows, truncate
from mimex.data.checks import require_range
from mimex.types import Metrics

GROUPS = 16
"""Groups of archived states by their distance to the reward, in steps."""

FADE = 0.98
"""Weight of earlier attempts from a group of states when a new one is added."""

LEAST_WEIGHT = 0.05
"""Weight with which a group is drawn whose attempts always, or never, succeed."""

PATIENCE, RETRIES = 30, 8
"""A restarted episode without reward is truncated after twice the group's distance and PATIENCE
steps, and another restart follows, at most RETRIES times in a row."""

Array = NDArray[Any]


@dataclass(frozen=True)
class RestartSettings:
    """Restarts from the agent's own states on the way to a reward."""

    share: float = 0.0
    """Fraction of training episodes that start from an archived state; 0 to disable. Needs
    environments that can restore their state: PixMC-Sparse, dmc/ and gym/mimex/."""
    capacity: int = 1600
    """Maximum number of archived states; then those of the least rewarded episodes are replaced."""
    per_episode: int = 16
    """States archived per rewarded episode."""
    reach: int = 240
    """Maximum steps from an archived state to the first reward."""
    every: int = 4
    """Steps between saved states of an episode."""

    def __post_init__(self) -> None:
        require_range("restarts", self, "[0, 1)", "share")
        require_range("restarts", self, "[1, inf)", "capacity", "per_episode", "reach", "every")


class Restarts:
    """The archive, and the states of running episodes that may enter it.

    Archived states are grouped by their distance to the reward. A group is drawn with weight ``4 p
    (1 - p) + 0.05``, where p is the share of recent attempts from it that succeeded, and then a
    state of the group. An attempt succeeds if it receives at least half of what the archived
    episode received. Restarts therefore begin close to the reward and move away from it as the
    agent learns (a reverse curriculum). Success rates are estimated per group because single states
    are tried too rarely.

    Args:
        env: Environments that can restore their state.
        settings: Settings of the restarts.
        task: Name of the task, for error messages.
        seed: Random seed.
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
        num_envs, capacity = env.num_envs, settings.capacity
        self._time = 0  # steps of each environment so far
        self._saved: dict[str, Array] = {}  # (slots, N, ...) by name: states of running episodes
        self._saved_at = np.full(max(1, settings.reach // settings.every), -1)  # time of each slot
        # Per running episode: its start, the positive reward received, the group of its archived
        # state (-1: a normal start), the reward of the archived episode, and the number of
        # truncated attempts before it.
        self._began = np.zeros(num_envs, np.int64)
        self._received = np.zeros(num_envs)
        self._source = np.full(num_envs, -1)
        self._aim = np.zeros(num_envs)
        self._retries = np.zeros(num_envs, np.int64)
        # States before their first reward (N, per_episode, ...), and distances to it; 0 for none.
        self._found: dict[str, Array] = {}
        self._distances = np.zeros((num_envs, settings.per_episode), np.int64)
        self._archive: dict[str, Array] = {}  # (capacity, ...) by name
        self._groups = np.zeros(capacity, np.int64)  # of the archived states
        self._values = np.zeros(capacity)  # reward that their episodes received
        self._tries = np.zeros((GROUPS, 2))  # attempts from each group, and successful ones
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def begin(self) -> None:
        """New episodes begin in all environments, all with normal starts."""
        self._start(np.arange(len(self._began)))

    def step(self, step: Step) -> Step:
        """Takes in a step, and begins some of the new episodes at archived states."""
        self._time += 1
        restarted = self._source >= 0
        rewards = _array(step.rewards)
        for env in np.flatnonzero((rewards > 0) & (self._received == 0) & ~restarted):
            self._stash(int(env))
        self._received += np.maximum(rewards, 0)
        failed = self._failed(_array(step.ended))
        if failed.any():
            step = truncate(step, failed)
        observation = step.next_observation
        ended = np.flatnonzero(_array(step.ended))
        if len(ended):
            self._note_outcomes(ended)
            for env in ended[self._distances[ended].any(1)]:
                self._keep(int(env))
            retries = np.where(failed, self._retries + 1, 0)[ended]
            self._start(ended)
            self._retries[ended] = retries
            observation = self._restart(ended, failed[ended], observation)
        if self._time % self.settings.every == 0:
            self._save()
        return step._replace(next_observation=observation, restarted=restarted)

    def _start(self, envs: Array) -> None:
        """Episodes begin, with normal starts."""
        self._began[envs] = self._time
        self._source[envs] = -1
        for counter in (self._received, self._retries, self._distances):
            counter[envs] = 0

    def _failed(self, ended: Array) -> Array:
        """Restarted episodes to truncate: no reward came in time."""
        limit = 2 * (self._source + 1) * self.settings.reach / GROUPS + PATIENCE
        late = (self._source >= 0) & (self._received == 0) & (self._time - self._began >= limit)
        failed: Array = late & (self._retries < RETRIES) & ~ended
        return failed

    def _save(self) -> None:
        """Saves the state of every running episode."""
        slots = len(self._saved_at)
        slot = self._time // self.settings.every % slots
        for name, values in self.env.snapshot().items():
            if name not in self._saved:
                self._saved[name] = np.zeros((slots, *values.shape), values.dtype)
            self._saved[name][slot] = values
        self._saved_at[slot] = self._time

    def _stash(self, env: int) -> None:
        """Sets states aside on an episode's way to its first reward."""
        slots = np.flatnonzero(self._saved_at >= self._began[env])
        slots = slots[self._saved_at[slots] >= self._time - self.settings.reach]
        chosen = self.generator.permutation(slots)[: self.settings.per_episode]
        for name, values in self._saved.items():
            if name not in self._found:
                shape = (*self._distances.shape, *values.shape[2:])
                self._found[name] = np.zeros(shape, values.dtype)
            self._found[name][env, : len(chosen)] = values[chosen, env]
        self._distances[env, : len(chosen)] = self._time - self._saved_at[chosen]

    def _keep(self, env: int) -> None:
        """Archives the states that were set aside of an episode that has ended."""
        capacity, value = self.settings.capacity, self._received[env]
        distances = self._distances[env][self._distances[env] > 0]
        ranks = self._values[: self._size] + 1e-9 * self.generator.random(self._size)
        worse = np.argsort(ranks)
        worse = worse[self._values[worse] <= value]
        free = np.arange(self._size, capacity)
        places = np.concatenate([free, worse])[: len(distances)]
        rows = np.arange(len(places))
        for name, values in self._found.items():
            if name not in self._archive:
                self._archive[name] = np.zeros((capacity, *values.shape[2:]), values.dtype)
            self._archive[name][places] = values[env, rows]
        groups = (distances[rows] - 1) * GROUPS // self.settings.reach
        self._groups[places], self._values[places] = groups, value
        self._size = min(capacity, self._size + len(places))

    def _note_outcomes(self, ended: Array) -> None:
        """Counts the restarted episodes that ended, and those that succeeded."""
        for env in ended[self._source[ended] >= 0]:
            success = self._received[env] >= max(0.5 * self._aim[env], 1e-12)
            group = self._source[env]
            self._tries[group] = FADE * self._tries[group] + (1.0, success)

    def _restart(self, ended: Array, failed: Array, observation: Any) -> Any:
        """Begins some of the new episodes at archived states; returns all observations."""
        drawn = (self.generator.random(len(ended)) < self.settings.share) | failed
        rows = ended[drawn].astype(np.int32)
        if not len(self) or not len(rows):
            return observation
        places = self.generator.choice(len(self), len(rows), p=self._weights())
        self._source[rows], self._aim[rows] = self._groups[places], self._values[places]
        states = {name: values[places] for name, values in self._archive.items()}
        return replace_rows(observation, rows, self.env.restore(rows, states))

    def _weights(self) -> Array:
        """The probability of each archived state."""
        tries, successful = self._tries.T
        p = (successful + 0.5) / (tries + 1.0)
        groups = self._groups[: self._size]
        members = np.maximum(np.bincount(groups, minlength=GROUPS), 1)
        weights = ((4 * p * (1 - p) + LEAST_WEIGHT) / members)[groups]
        found: Array = weights / weights.sum()
        return found

    def metrics(self) -> Metrics:
        """The size of the archive, and the mean distance to the reward with which it is drawn."""
        middles = (self._groups[: self._size] + 0.5) * self.settings.reach / GROUPS
        distance = self._weights() @ middles if self._size else 0.0
        return {"restart/archive": float(len(self)), "restart/distance": float(distance)}

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
        return {
            "time": self._time,
            "size": self._size,
            **{
                name: {n: v.copy() for n, v in getattr(self, f"_{name}").items()} for name in _DICTS
            },
            **{name: getattr(self, f"_{name}").copy() for name in _ARRAYS},
            "generator": self.generator.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        self._time, self._size = int(state["time"]), int(state["size"])
        for name in _DICTS:
            setattr(self, f"_{name}", {n: np.array(v) for n, v in state[name].items()})
        for name in _ARRAYS:
            setattr(self, f"_{name}", np.array(state[name]))
        self.generator.bit_generator.state = state["generator"]


_DICTS = ("saved", "found", "archive")
_ARRAYS = (
    "saved_at", "began", "received", "source", "aim", "retries", "distances", "groups", "values",
    "tries",
)  # fmt: skip


def _array(values: Any) -> Array:
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
