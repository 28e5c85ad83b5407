"""How the newest training episodes went."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.contracts import Agent, Observer, Step, final_successes
from mimex.nn import processes
from mimex.types import Metrics

_TERM, _CONDITION = "reward/", "_bonus"
"""An info entry "reward/lift_bonus" is above 0 where the condition "lift" is met."""


class Episodes(Observer):
    """Follows the running episodes and remembers how the last ones ended, in all processes.

    Args:
        num_envs: Environments side by side in this process.
        remember: How many ended episodes the metrics are about.
        frames_per_step: Frames that a step counts as.
    """

    def __init__(self, num_envs: int, remember: int, frames_per_step: int = 1) -> None:
        self._frames = frames_per_step
        self._returns = np.zeros(num_envs)  # of the running episodes, extrinsic
        self._steps = np.zeros(num_envs, np.int64)
        self._met: dict[str, NDArray[np.bool_]] = {}  # by condition: met in the running episode
        self._last: deque[Metrics] = deque(maxlen=remember)
        self._new: list[tuple[int, Metrics]] = []  # ended here since the last row, and when
        self.total = 0
        self._seen = 0  # steps of all environments, from the very first on
        self._first_reward: int | None = None  # the step of the first reward above 0

    def begin(self, observation: Any) -> None:
        """Forgets running and ended episodes: all environments were reset."""
        self.interrupt(observation)
        self.total = 0
        self._last.clear()
        self._new.clear()

    def interrupt(self, observation: Any) -> None:
        """Forgets the running episodes: all environments were reset in the middle of them."""
        self._returns[:], self._steps[:] = 0.0, 0
        self._met.clear()

    def step(self, step: Step) -> None:
        """Takes in one step of every environment."""
        rewards, ended, info = step.rewards, step.ended, step.info
        self._returns += rewards
        self._steps += 1
        self._seen += len(rewards) * processes.size()
        if self._first_reward is None and (rewards > 0).any():
            self._first_reward = self._seen
        final: Mapping[str, Any] = info.get("final_info", {})
        for name, values in info.items():
            if name.startswith(_TERM) and name.endswith(_CONDITION):
                met = self._met.setdefault(
                    name.removeprefix(_TERM).removesuffix(_CONDITION), np.zeros(len(rewards), bool)
                )
                met |= np.where(ended, final[name], values) > 0 if ended.any() else values > 0
        if ended.any():
            self._end(np.flatnonzero(ended), final_successes(info))
        if processes.size() == 1:
            self._meet()

    def _end(self, rows: NDArray[np.int64], successes: NDArray[Any] | None) -> None:
        for row in rows:
            outcome = {"return": self._returns[row], "episode_steps": self._steps[row]}
            if successes is not None:
                outcome["success"] = successes[row]
            outcome |= {f"reached_{name}": met[row] for name, met in self._met.items()}
            self._new.append((self._seen, {name: float(v) for name, v in outcome.items()}))
        for running in (self._returns, self._steps, *self._met.values()):
            running[rows] = 0

    def metrics(self, agent: Agent | None = None) -> Metrics:
        """Means over the last episodes, and the step of the first reward, once there are any."""
        found: Metrics = {}
        if processes.size() > 1:
            self._meet()
        if self._last:
            found = {
                f"train/{name}": float(np.mean([outcome[name] for outcome in self._last]))
                for name in self._last[-1]
            } | {"train/episodes": float(self.total)}
        if self._first_reward is not None:
            found["explore/first_reward"] = float(self._first_reward * self._frames)
        return found

    def _meet(self) -> None:
        """Takes in how episodes ended in all processes, in the order of their ends."""
        told = processes.every((self._first_reward, self._new))
        firsts = [first for first, _ in told if first is not None]
        self._first_reward = min(firsts, default=None)
        ended = sorted((one for _, new in told for one in new), key=lambda one: one[0])
        self._last.extend(outcome for _, outcome in ended)
        self.total += len(ended)
        self._new.clear()

    def state_dict(self) -> dict[str, Any]:
        """All that the metrics depend on."""
        return {
            "returns": self._returns.copy(),
            "steps": self._steps.copy(),
            "met": {name: met.copy() for name, met in self._met.items()},
            "last": {
                name: np.array([outcome[name] for outcome in self._last])
                for name in (self._last[-1] if self._last else ())
            },
            "total": self.total,
            "seen": self._seen,
            "first_reward": self._first_reward,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self._returns[:] = state["returns"]
        self._steps[:] = state["steps"]
        self._met = {name: np.array(met, bool) for name, met in state["met"].items()}
        self._last.clear()
        columns = {name: np.asarray(column).tolist() for name, column in state["last"].items()}
        for row in zip(*columns.values(), strict=True):
            self._last.append(dict(zip(columns, row, strict=True)))
        self.total, self._seen = int(state["total"]), int(state["seen"])
        self._first_reward = state["first_reward"]
