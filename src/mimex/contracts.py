"""Interfaces of the training loop: agents, environments and callbacks.

The loop (``train/runner.py``) depends on these only. An environment is a
``gymnasium.vector.VectorEnv`` that resets in the same step; its further capabilities are optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from mimex.types import Array, Metrics, Window

UNKNOWN_STEPS = 1000
"""Assumed maximum length of an episode if an environment does not report it."""

SHOWN_WINDOWS = 4
"""Windows of each kind that are kept to show the bonus's reconstructions."""


class Step(NamedTuple):
    """One step of all N environments: NumPy arrays, or tensors on the actions' device."""

    observation: Any  # before the step
    actions: Any
    next_observation: Any  # if the episode ended, the first of the next episode
    rewards: Any  # (N,) extrinsic
    terminated: Any  # (N,) bool
    truncated: Any  # (N,) bool
    info: Mapping[str, Any]
    restarted: Any = None  # (N,) bool: the episode started from an archived state; None if none did

    @property
    def ended(self) -> Any:
        """``(N,)`` bool: whether the episode ended with this step."""
        return self.terminated | self.truncated


class Scored(NamedTuple):
    """The raw bonus of the steps since the last call."""

    rounds: NDArray[np.int64]  # (n,) indices of the steps, from 0 since the last call
    bonus: NDArray[np.floating[Any]]  # (n, N)
    after: bool  # windows end at the next observation, not at the current one
    most_novel: Window | None  # some of the windows with the largest bonus


class Policy(Protocol):
    """A policy, as evaluations need it."""

    def policy(self, observation: Any, *, deterministic: bool = True, step: int = 0) -> Any:
        """Actions in the environments' format, for a batch of their observations.

        Args:
            observation: The environments' observation.
            deterministic: Disable exploration noise; otherwise actions are sampled.
            step: Agent steps so far, for noise schedules.
        """


class Stateful(Protocol):
    """Exact save and restore."""

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""


class Agent(Stateful, Protocol):
    """An algorithm with its data and its bonus.

    Attributes:
        algorithm: The policy; checkpoints store it under "algorithm".
        warming_up: True while steps are used for observation statistics only; afterwards all
            environments are reset.
        can_checkpoint: Whether the run can be saved and ended after this step.
        updates: Number of updates so far.
        continues_episodes: Whether episodes can continue after a state was loaded.
        bonus: The exploration bonus.
        probe: The first windows that the bonus was trained on, whose bonus is logged.
    """

    algorithm: Any
    bonus: Any
    updates: int
    probe: Window | None

    @property
    def warming_up(self) -> bool: ...

    @property
    def can_checkpoint(self) -> bool: ...

    @property
    def continues_episodes(self) -> bool: ...

    def begin(self, observation: Any) -> None:
        """Called after all environments were reset, with their observation."""

    def act(self, observation: Any, step: int) -> Array:
        """Actions for all environments at a step of the run.

        A NumPy array, or a tensor for environments that support tensors (``supports_tensors``).
        """

    def observe(self, step: Step) -> None:
        """Stores the outcome of the actions."""

    def update(self, step: int, *, last: bool) -> Metrics | None:
        """Updates if one is due; returns metrics if a row is due, and at the last step."""

    def scored(self) -> Scored | None:
        """The bonus of the newest steps, for the novelty map."""

    def save(self) -> None:
        """Writes the files that a checkpoint refers to."""

    def debug_state(self) -> dict[str, Any]:
        """The data of the last update, for debugging."""


class Callback:
    """Base class of callbacks, called at every step and for every row of metrics."""

    def begin(self, observation: Any) -> None:
        """Called after all environments were reset, with their observation."""

    def interrupt(self, observation: Any) -> None:
        """Called after all environments were reset in the middle of their episodes."""
        self.begin(observation)

    def step(self, step: Step) -> None:
        """Processes one step of all environments."""

    def metrics(self, agent: Agent) -> Metrics:
        """Metrics for this row."""
        return {}

    def record(self, run: Path | None, step: int, agent: Agent) -> None:
        """Writes larger records to the run folder, at each evaluation.

        Args:
            run: The run folder; None in processes other than the first, which write nothing.
            step: Frames so far.
            agent: The agent.
        """

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``state_dict``."""


@runtime_checkable
class SavesState(Protocol):
    """Environments that can be saved and restored exactly."""

    def get_state(self) -> dict[str, Any]:
        """Arrays and JSON-serializable values."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores a state of ``get_state``."""


@runtime_checkable
class Restorable(Protocol):
    """Environments whose episodes can start from states of earlier ones."""

    def snapshot(self) -> dict[str, Any]:
        """The states of all environments: arrays ``(N, ...)`` by name."""

    def restore(self, rows: Any, states: Mapping[str, Any]) -> Any:
        """Starts new episodes of some environments from such states, ``(rows, ...)`` by name.

        Returns:
            Their observations ``(rows, ...)``.
        """


@runtime_checkable
class Located(Protocol):
    """Environments that report positions, for coverage and maps.

    Attributes:
        position_kind: "hand" for hand positions in meters in the robots' workspace, "state" for
            other vectors.
    """

    position_kind: str

    def positions(self) -> Array:
        """The position of each environment, ``(N, d)``."""


@runtime_checkable
class ChangesReward(Protocol):
    """Environments whose reward can be changed during training, for a curriculum."""

    def set_reward(self, weights: str) -> None:
        """Sets the reward from the next step on, by name."""


def frames_per_step(env: VectorEnv[Any, Any, Any]) -> int:
    """Frames per environment step."""
    return int(getattr(env.unwrapped, "frames_a_step", 1))


def supports_tensors(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether the environments have a ``step_on_device`` that takes and returns tensors.

    ``info["final_obs"]`` is then a batch of the ended episodes only, and ``info["final_info"]`` has
    tensors of all environments. Wrapped environments use NumPy.
    """
    return bool(getattr(env, "tensors", False))


def step_env(env: Any, actions: Array) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Steps environments with NumPy actions, or with tensors on their device."""
    result = env.step_on_device(actions) if isinstance(actions, Tensor) else env.step(actions)
    return cast(tuple[Any, Any, Any, Any, dict[str, Any]], result)


def final_observations(step: Step) -> Any:
    """A batch of the final observations of the ended episodes, in the environments' order."""
    if not isinstance(step.info["final_obs"], np.ndarray):
        return step.info["final_obs"]
    finals = list(step.info["final_obs"][step.ended])
    if isinstance(finals[0], dict):
        return {part: np.stack([final[part] for final in finals]) for part in finals[0]}
    return np.stack(finals)


def truncate(step: Step, rows: NDArray[np.bool_]) -> Step:
    """Truncates some running episodes at a step, as the environments would.

    Args:
        step: One step of N environments.
        rows: ``(N,)`` bool: episodes to truncate; none of them ended at this step.
    """
    info, observation = dict(step.info), step.next_observation
    on_device = isinstance(step.truncated, Tensor)
    some: Any = torch.as_tensor(rows, device=step.truncated.device) if on_device else rows
    truncated, ended = step.truncated | some, step.ended | some
    if on_device:
        finals = observation
        if "final_obs" in info:
            finals = replace_rows(observation, step.ended, info["final_obs"])
        return step._replace(
            truncated=truncated,
            info=info
            | {
                "final_obs": _select_rows(finals, ended),
                "final_info": info.get("final_info", dict(step.info)),
            },
        )
    last = info.get("final_obs", np.full(len(rows), None, object)).copy()
    for row in np.flatnonzero(rows):
        last[row] = _select_rows(observation, row)
    final = dict(info.get("final_info", {}))
    for name, values in step.info.items():
        if isinstance(values, np.ndarray) and f"_{name}" in info and not name.startswith("final_"):
            earlier = final.get(name, np.zeros_like(values))
            final[name] = np.where(rows.reshape(-1, *[1] * (values.ndim - 1)), values, earlier)
            final[f"_{name}"] = ended & (info[f"_{name}"] | final.get(f"_{name}", False))
    masks = {"_final_obs": ended, "_final_info": ended}
    return step._replace(
        truncated=truncated, info=info | {"final_obs": last, "final_info": final} | masks
    )


def _select_rows(observation: Any, rows: Any) -> Any:
    """A copy of some rows of a batch of observations."""
    if isinstance(observation, dict):
        return {part: _select_rows(values, rows) for part, values in observation.items()}
    taken = observation[rows]
    return taken.clone() if isinstance(taken, Tensor) else np.array(taken)


def replace_rows(observation: Any, rows: Any, new: Any) -> Any:
    """A copy of a batch of observations with some rows replaced, by a mask or by indices."""
    if isinstance(observation, dict):
        return {part: replace_rows(v, rows, new[part]) for part, v in observation.items()}
    if isinstance(observation, Tensor):
        changed = observation.clone()
        changed[torch.as_tensor(rows)] = torch.as_tensor(new).to(changed)
        return changed
    replaced = np.array(observation)
    replaced[rows] = new
    return replaced


def final_successes(info: Mapping[str, Any]) -> Any:
    """Success of the ended episodes, ``(N,)`` bool; None if no environment reports it.

    By Gymnasium's mask, an episode without a report counts as a failure.
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
    """Maximum steps of an episode; a guess if the environments do not report it."""
    limit = None if env.spec is None else env.spec.max_episode_steps
    return int(getattr(env.unwrapped, "episode_steps", None) or limit or UNKNOWN_STEPS)
