"""The training loop: act, step, look on, learn, report. It owns the one counter of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch import Generator

from mimex.contracts import (
    Agent,
    Observer,
    SavesState,
    Step,
    episode_steps,
    frames_per_step,
    moved,
)
from mimex.nn import processes
from mimex.track.clock import Clock
from mimex.train.restarts import Restarts
from mimex.types import Metrics


class Training:
    """A run: environments, an agent, and who looks on.

    Attributes:
        step: Frames so far, over all environments of all processes: environment steps, where a
            step is one frame.
        observation: What the agent acts on next; None before the run has begun.

    Args:
        env: Environments that reset in the same step.
        agent: What acts and learns.
        observers: By the names under which a checkpoint holds them.
        seed: Of the environments.
        restarts: Begins some episodes at archived states; None where all start normally.
        stagger: From which the ages of the first episodes are drawn, so that environments do not
            all end at once; None where all begin at their beginning.
        clock: Where time is counted.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        agent: Agent,
        observers: Mapping[str, Observer],
        *,
        seed: int,
        restarts: Restarts | None = None,
        stagger: Generator | None = None,
        clock: Clock,
    ) -> None:
        self.env, self.agent, self.observers = env, agent, dict(observers)
        self.restarts = restarts
        self.seed, self.stagger, self.clock = seed, stagger, clock
        self.observation: Any = None
        self.step = 0
        self._frames = frames_per_step(env) * env.num_envs * processes.size()

    def rows(
        self,
        total: int,
        stop: object = False,
        progress: Callable[[int], None] = lambda step: None,
    ) -> Iterator[Metrics]:
        """Trains until all frames are made, and gives row after row of metrics.

        Between two rows the caller may evaluate, save, or stop.

        Args:
            total: Frames in all.
            stop: Once it is true, training ends where the agent may rest; what was begun of a row
                is reported by the run that continues. Asked for only there.
            progress: Is told the frames made so far, often.
        """
        if self.observation is None:
            self._begin(self.seed)
        reported = self.step
        while self.step < total or not self.agent.resting:
            if self.agent.resting and stop:
                return
            metrics = self.advance(total)
            progress(self.step)
            if metrics is not None:
                yield metrics | self.clock.read(self.step - reported)
                reported = self.step

    def advance(self, total: int) -> Metrics | None:
        """One step of every environment, and what is learned after it; metrics where they are due.

        Args:
            total: Frames in all, at which there is a last row.
        """
        agent, warming_up, observation = self.agent, self.agent.warming_up, self.observation
        actions = agent.act(observation, self.step)
        with self.clock("simulation"):
            made = Step(observation, actions, *moved(self.env, actions))
            if self.restarts is not None:
                made = self.restarts.step(made)
        agent.observe(made)
        for observer in self.observers.values():
            observer.step(made)
        self.observation = made.next_observation
        self.step += self._frames
        metrics = agent.update(self.step, last=self.step >= total)
        if warming_up and not agent.warming_up:
            self._begin(None)
        if metrics is None:
            return None
        with self.clock("observing"):
            for observer in self.observers.values():
                metrics |= observer.metrics(agent)
        return metrics if self.restarts is None else metrics | self.restarts.metrics()

    def _begin(self, seed: int | None, *, resumed: bool = False) -> None:
        """Begins new episodes in all environments."""
        self.observation, _ = self.env.reset(seed=seed)
        if not self.agent.warming_up:
            self._set_ages()
        self.agent.begin(self.observation)
        if self.restarts is not None:
            self.restarts.begin()
        for observer in self.observers.values():
            if resumed:
                observer.interrupt(self.observation)
            else:
                observer.begin(self.observation)

    def _set_ages(self) -> None:
        simulation: Any = self.env.unwrapped
        if self.stagger is None or not isinstance(simulation, SavesState):
            return
        state = simulation.get_state()
        if "steps" in state:
            ages = torch.randint(
                episode_steps(self.env), state["steps"].shape, generator=self.stagger
            )
            simulation.set_state(state | {"steps": ages.numpy()})

    def record(self, run: Path | None) -> None:
        """Lets the observers write what is too large for a row into the run folder, if any."""
        for observer in self.observers.values():
            observer.record(run, self.step, self.agent)

    def state_dict(self) -> dict[str, Any]:
        """All that ``load_state_dict`` needs to continue exactly here.

        Where the environments cannot save their state, new episodes begin then.
        """
        simulation: Any = self.env.unwrapped
        saves = isinstance(simulation, SavesState)
        return {
            "step": self.step,
            **self.without_environments(),
            "environment": simulation.get_state() if saves else None,
            "observation": self.observation if saves else None,
        }

    def without_environments(self) -> dict[str, Any]:
        """The state of agent and observers, also before the run has begun."""
        return {
            "agent": self.agent.state_dict(),
            "restarts": None if self.restarts is None else self.restarts.state_dict(),
            "observers": {name: each.state_dict() for name, each in self.observers.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Continues from a state that ``state_dict`` gave.

        Returns:
            Whether episodes that ran then go on; otherwise new ones have begun.
        """
        self.step = int(state["step"])
        self.agent.load_state_dict(state["agent"])
        for name, observer in self.observers.items():
            observer.load_state_dict(state["observers"][name])
        if self.restarts is not None:
            self.restarts.load_state_dict(state["restarts"])
        simulation = self.env.unwrapped
        if state["environment"] is not None and isinstance(simulation, SavesState):
            simulation.set_state(state["environment"])
            self.observation = state["observation"]
            if self.agent.continues_episodes:
                return True
            self._begin(None, resumed=True)
        else:
            # Another seed than at the start, or the first episodes would be played again.
            self._begin(self.seed + self.step, resumed=True)
        return False
