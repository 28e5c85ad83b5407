"""How the newest training episodes went."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.types import Metrics


class Episodes:
    """Follows the running episodes and remembers how the last ones ended.

    Args:
        num_envs: Environments side by side.
        remember: How many ended episodes the metrics are about.
    """

    def __init__(self, num_envs: int, remember: int) -> None:
        self._returns = np.zeros(num_envs)  # of the running episodes, extrinsic
        self._steps = np.zeros(num_envs, np.int64)
        self._last: deque[tuple[float, float, float]] = deque(maxlen=remember)
        self.total = 0

    def begin(self) -> None:
        """Forgets running and ended episodes: all environments were reset."""
        self._returns[:], self._steps[:], self.total = 0.0, 0, 0
        self._last.clear()

    def step(
        self,
        rewards: NDArray[Any],
        ended: NDArray[np.bool_],
        info: Mapping[str, Any],
    ) -> None:
        """Takes in one step of every environment."""
        self._returns += rewards
        self._steps += 1
        if not ended.any():
            return
        success = info["final_info"]["success"]
        for row in np.flatnonzero(ended):
            outcome = (float(success[row]), float(self._returns[row]), float(self._steps[row]))
            self._last.append(outcome)
        self.total += int(ended.sum())
        self._returns[ended] = 0.0
        self._steps[ended] = 0

    def metrics(self) -> Metrics:
        """Means over the last episodes; nothing before the first has ended."""
        if not self._last:
            return {}
        success, returns, steps = np.mean(np.array(self._last), axis=0).tolist()
        return {
            "train/success": success,
            "train/return": returns,
            "train/episode_steps": steps,
            "train/episodes": float(self.total),
        }

    def state_dict(self) -> dict[str, Any]:
        """All that the metrics depend on."""
        return {
            "returns": self._returns.copy(),
            "steps": self._steps.copy(),
            "last": np.array(self._last).reshape(-1, 3),
            "total": self.total,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""
        self._returns[:] = state["returns"]
        self._steps[:] = state["steps"]
        self._last.clear()
        self._last.extend(tuple(row) for row in np.asarray(state["last"]).tolist())
        self.total = int(state["total"])
