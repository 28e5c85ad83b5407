"""A curriculum of rewards, driven by the success rate."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium.vector import VectorEnv

from mimex.contracts import Agent, Callback, ChangesReward, Step, final_successes
from mimex.nn import processes
from mimex.types import Metrics

EPISODES = 100
"""Newest episodes, all under the present reward, that are looked at."""


class Curriculum(Callback):
    """Changes the environments' reward, from stage to stage, as the agent succeeds.

    Args:
        env: Environments whose reward can be changed, and whose episodes report success.
        stages: Names of rewards, in order.
        success_rate: Share of the last episodes that must succeed before the next stage.
        episodes: How many episodes are looked at.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        stages: Sequence[str],
        success_rate: float = 0.8,
        episodes: int = EPISODES,
    ) -> None:
        simulation = env.unwrapped
        if not isinstance(simulation, ChangesReward):
            raise ValueError(
                "--curriculum needs a task whose reward can be changed: one of PixMC-Sparse"
            )
        self._env, self.stages, self.success_rate = simulation, tuple(stages), success_rate
        self._outcomes: deque[bool] = deque(maxlen=episodes)
        self._new: list[bool] = []  # of this process, since all were looked at
        self._enter(0)

    def _enter(self, stage: int) -> None:
        self.stage = stage
        self._outcomes.clear()
        self._env.set_reward(self.stages[stage])

    def step(self, step: Step) -> None:
        """Moves on once enough of the last episodes have succeeded; see ``metrics``."""
        if not step.ended.any():
            return
        successes = final_successes(step.info)
        assert successes is not None
        self._new += successes[step.ended].tolist()
        if processes.size() == 1:
            self._look()

    def _look(self) -> None:
        for new in processes.all_gather_object(self._new):
            self._outcomes.extend(new)
        self._new.clear()
        full, following = len(self._outcomes) == self._outcomes.maxlen, self.stage + 1
        if not full or following == len(self.stages):
            return
        if sum(self._outcomes) / len(self._outcomes) >= self.success_rate:
            self._enter(following)

    def metrics(self, agent: Agent) -> Metrics:
        """The stage, from 0; several processes look at their episodes, and move on, here."""
        if processes.size() > 1:
            self._look()
        return {"train/stage": float(self.stage)}

    def state_dict(self) -> dict[str, Any]:
        """The stage, and the episodes since it was entered."""
        return {"stage": self.stage, "outcomes": list(self._outcomes)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""
        self._enter(int(state["stage"]))
        self._outcomes.extend(bool(outcome) for outcome in state["outcomes"])
