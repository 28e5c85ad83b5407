"""The reward as a weighted sum of named terms, with the published weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.envs.arrays import namespace
from mimex.envs.catalog import robot_and_kind, robot_named, task_class
from mimex.envs.nearest import choose

Array = NDArray[np.float64]

BONUS = 0.5
"""Value of a bonus term before its weight (published)."""

SHAPINGS = ("dense", "sparse", "sparser")
"""The published weightings, from most to least informative."""

Weights = Mapping[str, tuple[float, float, float]]
"""Weights by term: dense, sparse, sparser (PixMC-Sparse, tables 2 and 3)."""

ACTION_PENALTY: Weights = {"action_penalty": (0.01, 0.01, 0.01)}
"""Weight of the action penalty in every task."""


def weights(task: str, reward: str | Mapping[str, float]) -> dict[str, float]:
    """Return the weight of every term of a task.

    Args:
        task: One of the eight, for example "FrankaPick".
        reward: "dense", "sparse", "sparser", or weights by term; missing terms get weight 0.
            `{**weights("FrankaPick", "sparse"), "lift_bonus": 8.0}` changes one of them.
    """
    robot, kind = robot_and_kind(task)
    published = {**task_class(kind).weights[robot_named(robot).end_effector], **ACTION_PENALTY}
    if isinstance(reward, str):
        column = SHAPINGS.index(choose("reward", reward, SHAPINGS))
        return {term: by_shaping[column] for term, by_shaping in published.items()}
    for term, weight in reward.items():
        choose(f"a term of reward for {task}", term, tuple(published))
        if not np.isfinite(weight):
            raise ValueError(f"reward[{term!r}] is {weight}, but a weight must be finite")
    return {term: float(reward.get(term, 0.0)) for term in published}


def reweighed(task: str, weight: Mapping[str, float], changes: Sequence[str]) -> dict[str, float]:
    """Return the weights with some changed, given as "term=weight"."""
    changed = dict(weight)
    for change in changes:
        term, _, number = change.partition("=")
        choose(f"a term of reward for {task}", term, tuple(weight))
        try:
            changed[term] = float(number)
        except ValueError:
            changed[term] = np.nan
        if not np.isfinite(changed[term]):
            raise ValueError(
                f"terms has {change!r}, but must be term=weight, for example '{term}=0'"
            )
    return changed


def near(distance: Array, floor: float, offset: float) -> Array:
    """Return 1 / (offset + max(distance, floor)) (1/m), which is constant below the floor."""
    return 1.0 / (offset + distance.clip(floor))


def bonus(condition: Any) -> Array:
    """Return 0.5 where the condition holds and 0 elsewhere, (N,)."""
    worth: Array = BONUS * condition
    return worth


def action_penalty(actions: Array) -> Array:
    """Return minus the squared norm of each action, (N,)."""
    penalty: Array = -namespace(actions).einsum("na,na->n", actions, actions)
    return penalty


def total(terms: Mapping[str, Array], weight: Mapping[str, float]) -> Array:
    """Return the weighted sum of the terms, (N,)."""
    parts = (weight[name] * value for name, value in terms.items() if weight[name] != 0.0)
    first = next(iter(terms.values()))
    whole: Array = sum(parts, start=namespace(first).zeros_like(first))
    return whole
