"""A curriculum of rewards."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium.vector import VectorEnv

from mimex.contracts import Agent, Callback, ChangesReward, Step, final_successes
from mimex.nn import processes
from mimex.types import Metrics

EPISODES = 100
"""Number of episodes that the success rate is computed over."""


class Curriculum(Callback):
    """Switches the environments to the next reward once the success rate is high enough.

    Args:
        env: Environments whose reward can be changed, and whose episodes report success.
        stages: Names of rewards, in order.
        success_rate: Required success rate over the last episodes of a stage.
        episodes: Number of episodes that the success rate is computed over.
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
        self._new: list[bool] = []  # of this process, since the last synchronization
        self._enter(0)

    def _enter(self, stage: int) -> None:
        self.stage = stage
        self._outcomes.clear()
        self._env.set_reward(self.stages[stage])

    def step(self, step: Step) -> None:
        if not step.ended.any():
            return
        successes = final_successes(step.info)
        assert successes is not None
        self._new += successes[step.ended].tolist()
        if processes.size() == 1:
            self._update()

    def _update(self) -> None:
        """Enters the next stage if the success rate over all processes is high enough."""
        for new in processes.all_gather_object(self._new):
            self._outcomes.extend(new)
        self._new.clear()
        if len(self._outcomes) < (self._outcomes.maxlen or 0) or self.stage + 1 == len(self.stages):
            return
        if sum(self._outcomes) / len(self._outcomes) >= self.success_rate:
            self._enter(self.stage + 1)

    def metrics(self, agent: Agent) -> Metrics:
        """The stage, from 0. With several processes, stages change here."""
        if processes.size() > 1:
            self._update()
        return {"train/stage": float(self.stage)}

    def state_dict(self) -> dict[str, Any]:
        return {"stage": self.stage, "outcomes": list(self._outcomes)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._enter(int(state["stage"]))
        self._outcomes.extend(bool(outcome) for outcome in state["outcomes"])
