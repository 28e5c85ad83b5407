"""The benchmark's second axis of difficulty: rewards that help less and less.

The first axis, resolution in time and space, is `control_hz`, `episode_steps`, `image_size`,
`goal_spread` and `object_spread` of `mimex.envs.settings.Settings`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from mimex.envs.reward import SHAPINGS, weights


def shapings(task: str) -> tuple[str, ...]:
    """Return the shapings of a task from easy to hard, without those that repeat the one before.

    Reach has two, since its sparse reward has nothing left to take away.
    """
    different = [SHAPINGS[0]]
    for name in SHAPINGS[1:]:
        if weights(task, name) != weights(task, different[-1]):
            different.append(name)
    return tuple(different)


class Curriculum:
    """Walks from dense to sparser, one step whenever the present reward is mastered.

    In a training loop, where `info` is a vector environment's:

        if "final_info" in info:
            if curriculum.record(info["final_info"]["success"][info["_final_info"]]):
                env.unwrapped.set_reward(curriculum.reward)

    Args:
        task: One of the eight, for example "FrankaPick".
        success_rate: Share of the last episodes that must succeed before the next step.
        episodes: How many episodes, all under the present reward, are looked at.
    """

    def __init__(self, task: str, *, success_rate: float = 0.8, episodes: int = 100) -> None:
        if not 0.0 < success_rate <= 1.0:
            raise ValueError(f"success_rate is {success_rate}, but must be in (0, 1]")
        if episodes < 1:
            raise ValueError(f"episodes is {episodes}, but must be 1 or more")
        self.stages = shapings(task)
        self.success_rate = success_rate
        self._stage = 0
        self._outcomes: deque[bool] = deque(maxlen=episodes)

    @property
    def reward(self) -> str:
        """The reward to train with now."""
        return self.stages[self._stage]

    def record(self, successes: Iterable[bool]) -> bool:
        """Take note of episodes that ended; return whether the reward changed."""
        self._outcomes.extend(bool(success) for success in successes)
        full = len(self._outcomes) == self._outcomes.maxlen
        last = self._stage == len(self.stages) - 1
        if last or not full or sum(self._outcomes) < self.success_rate * len(self._outcomes):
            return False
        self._stage += 1
        self._outcomes.clear()
        return True

    def get_state(self) -> dict[str, Any]:
        """Return how far the walk is, as JSON-able values."""
        return {"reward": self.reward, "outcomes": list(self._outcomes)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned."""
        self._stage = self.stages.index(state["reward"])
        self._outcomes.clear()
        self._outcomes.extend(state["outcomes"])
