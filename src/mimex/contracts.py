"""What the training loop asks of its parts: agents, environments and observers.

The loop (``train/runner.py``) knows these and nothing else. An environment is a plain
``gymnasium.vector.VectorEnv`` that resets in the same step; what more it can do is optional, and
looked up here alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from mimex.types import Array, Metrics, Window

UNKNOWN_STEPS = 1000
"""Length of an episode, for progress bars, where nobody says how long it may be."""

SHOWN_WINDOWS = 4
"""Windows of each kind that are kept to show the bonus's reconstructions."""


class Step(NamedTuple):
    """One step of all N environments: NumPy's arrays, or tensors where the actions are."""

    observation: Any  # on which the agent acted, as the environments gave it
    actions: Any
    next_observation: Any  # the next episode's first one where an episode ended
    rewards: Any  # (N,) of the task
    terminated: Any  # (N,) bool
    truncated: Any  # (N,) bool
    info: Mapping[str, Any]
    restarted: Any = None  # (N,) bool: the episode began at an archived state; None for none did

    @property
    def ended(self) -> Any:
        """``(N,)``: the step was the last of its episode."""
        return self.terminated | self.truncated


class Scored(NamedTuple):
    """The raw bonus of steps since the last time it was asked for."""

    rounds: NDArray[np.int64]  # (n,) which of the steps, counted from 0 since the last time
    bonus: NDArray[np.floating[Any]]  # (n, N)
    after: bool  # windows end at what the steps led to, not at what the agent acted on
    most_novel: Window | None  # some of the windows with the greatest bonus


class Policy(Protocol):
    """What an evaluation plays."""

    def policy(self, observation: Any, *, deterministic: bool = True, step: int = 0) -> Any:
        """Actions, as the environments take them, for a batch of observations.

        Args:
            observation: As the environments gave it.
            deterministic: Without the noise of training; else drawn from the policy's generator.
            step: Steps of the agent so far, where its noise depends on them.
        """


class Stateful(Protocol):
    """Something that continues exactly from what it said of itself."""

    def state_dict(self) -> dict[str, Any]:
        """All that ``load_state_dict`` needs to continue exactly here."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""


class Agent(Stateful, Protocol):
    """An algorithm with its memory and its bonus: it acts, takes in what came of it, and learns.

    Attributes:
        algorithm: What an evaluation plays, and what its checkpoint holds under "algorithm".
        warming_up: True while steps only serve to know the observations' size; when that ends,
            new episodes begin.
        resting: Whether a run may be saved and ended here.
        updates: How often the algorithm has learned so far.
        continues_episodes: Whether, after its state was loaded, the episodes can go on that ran
            when it was saved.
        bonus: What scores windows.
        probe: The first windows that the bonus learned from, whose bonus is followed.
    """

    algorithm: Any
    bonus: Any
    updates: int
    probe: Window | None

    @property
    def warming_up(self) -> bool: ...

    @property
    def resting(self) -> bool: ...

    @property
    def continues_episodes(self) -> bool: ...

    def begin(self, observation: Any) -> None:
        """New episodes begin in all environments, with this observation."""

    def act(self, observation: Any, step: int) -> Array:
        """Actions for all environments; ``step`` counts the agent's own so far.

        NumPy's, or a tensor where the environments take it (``speaks_tensors``).
        """

    def observe(self, step: Step) -> None:
        """Takes in what came of the actions."""

    def update(self, step: int, *, last: bool) -> Metrics | None:
        """Learns where that is due; metrics where a row of them is, and at the last step."""

    def scored(self) -> Scored | None:
        """The bonus of the newest steps, for a map; computed when asked for."""

    def save(self) -> None:
        """Writes what a checkpoint counts on but does not hold."""

    def evidence(self) -> dict[str, Any]:
        """What an update learned from, to look at when it failed."""


class Observer:
    """Looks on, step by step, and says something about it with each row of metrics."""

    def begin(self, observation: Any) -> None:
        """The first episodes begin in all environments, with this observation."""

    def interrupt(self, observation: Any) -> None:
        """New episodes take the place of those that ran, which never end."""
        self.begin(observation)

    def step(self, step: Step) -> None:
        """Takes in one step of all environments."""

    def metrics(self, agent: Agent) -> Metrics:
        """What to say in this row."""
        return {}

    def record(self, run: Path | None, step: int, agent: Agent) -> None:
        """Writes what is too large for a row into the run folder, at each evaluation.

        Args:
            run: The folder; None in other processes than the first, which write nothing.
            step: Frames so far.
            agent: What acts.
        """

    def state_dict(self) -> dict[str, Any]:
        """All that ``load_state_dict`` needs to continue exactly here."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave."""


@runtime_checkable
class SavesState(Protocol):
    """Environments that can be continued bit for bit."""

    def get_state(self) -> dict[str, Any]:
        """Arrays and JSON-able values."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continues from what ``get_state`` returned."""


@runtime_checkable
class Restorable(Protocol):
    """Environments whose episodes can begin at states of earlier ones."""

    def snapshot(self) -> dict[str, Any]:
        """What every running episode is made of: arrays ``(N, ...)`` by name."""

    def restore(self, rows: Any, states: Mapping[str, Any]) -> Any:
        """Begins new episodes of some environments at such states, ``(rows, ...)`` by name.

        Returns:
            Their observations ``(rows, ...)``.
        """


@runtime_checkable
class Located(Protocol):
    """Environments that say where they are, for coverage and maps.

    Attributes:
        place_kind: "hand" for positions in metres in the box that the robots reach, "state" for
            any other vectors.
    """

    place_kind: str

    def places(self) -> Array:
        """``(N, d)``: where each environment is now."""


@runtime_checkable
class ChangesReward(Protocol):
    """Environments whose reward can be changed while they run, as a curriculum does."""

    def set_reward(self, weights: str) -> None:
        """The reward from the next step on, by its name."""


def frames_per_step(env: VectorEnv[Any, Any, Any]) -> int:
    """Frames of the simulation that one step of an environment counts as."""
    return int(getattr(env.unwrapped, "frames_a_step", 1))


def speaks_tensors(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether environments have a ``step_on_device`` that takes and gives tensors there.

    ``info["final_obs"]`` is then a batch of the ended episodes' alone, and ``info["final_info"]``
    has tensors of all environments. A wrapper speaks for itself, which means NumPy.
    """
    return bool(getattr(env, "tensors", False))


def moved(env: Any, actions: Array) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """What environments answer to actions: NumPy's or tensors, as these are."""
    made = env.step_on_device(actions) if isinstance(actions, Tensor) else env.step(actions)
    return cast(tuple[Any, Any, Any, Any, dict[str, Any]], made)


def final_observations(step: Step) -> Any:
    """A batch of the last observations of the episodes that ended, in the environments' order."""
    if not isinstance(step.info["final_obs"], np.ndarray):
        return step.info["final_obs"]
    finals = list(step.info["final_obs"][step.ended])
    if isinstance(finals[0], dict):
        return {part: np.stack([final[part] for final in finals]) for part in finals[0]}
    return np.stack(finals)


def final_successes(info: Mapping[str, Any]) -> Any:
    """Whether episodes that ended succeeded, ``(N,)``; None where none of them reports it.

    Where Gymnasium's mask says that an episode does not report success, it had none.
    """
    final = info.get("final_info", {})
    name = next((name for name in ("success", "is_success") if name in final), None)
    if name is None:
        return None
    values, reported = final[name], final.get(f"_{name}")
    if reported is None or isinstance(values, Tensor):
        return values
    return np.where(reported, values, False).astype(bool) if np.any(reported) else None


def episode_steps(env: VectorEnv[Any, Any, Any]) -> int:
    """Steps after which an episode is cut off; a guess where the environments do not say so."""
    limit = None if env.spec is None else env.spec.max_episode_steps
    return int(getattr(env.unwrapped, "episode_steps", None) or limit or UNKNOWN_STEPS)
