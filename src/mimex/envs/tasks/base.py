"""Base class of the manipulation tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from mimex.envs.arrays import copied, namespace
from mimex.envs.engine import ALL, Array, Engine, Rows
from mimex.envs.reward import Weights
from mimex.envs.robots.base import EndEffector, Robot
from mimex.envs.settings import Settings
from mimex.envs.shapes import Vector

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Outcome:
    """Outcome of one control step in every environment.

    Attributes:
        terms: Unweighted reward terms by name, (N,) each.
        met: Whether the success condition holds, (N,).
        fallen: Whether the object has fallen, which terminates the episode, (N,).
        touched: Whether the object is moving, (N,); None if the task has no movable object.
    """

    terms: dict[str, Array]
    met: Mask
    fallen: Mask
    touched: Mask | None = None


class Task(ABC):
    """Places objects at a reset, and computes reward terms, success and oracle observations.

    Attributes:
        draws: Number of uniform draws in [-1, 1] that one reset needs.
        steps: Episode length at 60 Hz.
        sparse_steps: Episode length without the dense reward, by end effector, where it differs.
        weights: Weights of the reward terms except the action penalty, by end effector.
        own_settings: Settings that this task uses and some other tasks do not.
        explored: Observation groups that an exploration bonus gets by default.
        view: Position of the video camera, and the point it looks at (m).
        memory: Arrays (N, ...) by name that the task keeps within an episode; part of the state.
    """

    draws: ClassVar[int]
    steps: ClassVar[int] = 500  # published
    sparse_steps: ClassVar[Mapping[EndEffector, int]] = {}
    weights: ClassVar[Mapping[EndEffector, Weights]]
    own_settings: ClassVar[tuple[str, ...]] = ()
    explored: ClassVar[tuple[str, ...]] = ("object",)
    view: ClassVar[tuple[Vector, Vector]] = ((0.1, -2.0, 1.3), (0.54, 0.0, 0.47))

    def __init__(self, robot: Robot, engine: Engine, settings: Settings) -> None:
        self.robot = robot
        self.engine = engine
        self.settings = settings
        self.memory: dict[str, Array] = {}
        self._finger_ids = engine.site_ids(robot.fingers)

    @staticmethod
    @abstractmethod
    def furnish(spec: mujoco.MjSpec, robot: Robot) -> None:
        """Add the task's furniture, objects and goal to a scene."""

    @staticmethod
    @abstractmethod
    def success_condition(robot: Robot) -> str:
        """Return a short description of the success condition."""

    @abstractmethod
    def place(self, rows: NDArray[np.int32], unit: Array) -> None:
        """Place objects and goals in some environments, given draws in [-1, 1] (rows, draws)."""

    @abstractmethod
    def evaluate(self) -> Outcome:
        """Return the reward terms (except the action penalty), success and falls."""

    @abstractmethod
    def oracle(self, rows: Rows) -> dict[str, Array]:
        """Return the features that the oracle observation adds to proprioception, by group.

        Each group is (rows, D). Names have the same meaning in every task: "hand" (palm and grasp
        points), "object" (cube or handle), "goal", and vectors between them, such as
        "hand_to_object".
        """

    def fingers(self, rows: Rows = ALL) -> Array:
        """Return the grasp points of the fingers (m), (rows, fingers, 3)."""
        return self.engine.sites(self._finger_ids, rows)

    def grasp_groups(self, rows: Rows, target: Array) -> dict[str, Array]:
        """Return the groups hand (palm, fingers), object, and object minus each finger."""
        fingers = self.fingers(rows)  # (rows, fingers, 3)
        away = target[:, None] - fingers
        hand = fingers.reshape(len(fingers), -1)
        if self.robot.palm is not None:
            palm = self.engine.site(self.robot.palm)[rows]
            hand = namespace(hand).concatenate([palm, hand], 1)
        return {"hand": hand, "object": target, "hand_to_object": away.reshape(len(fingers), -1)}


def approach_terms(nearness: Array, gripper_term: str) -> dict[str, Array]:
    """Return the reward terms for approaching the target, given nearness (N, fingers).

    The two fingers of a gripper share one term; a hand has one term for its fingers and one for the
    thumb, which comes last.
    """
    if nearness.shape[1] == 2:
        return {gripper_term: nearness[:, 0] + nearness[:, 1]}
    index, middle, ring, thumb = nearness.T
    return {"finger_distance": index + middle + ring, "thumb_distance": copied(thumb)}


def distances(a: Array, b: Array) -> Array:
    """Return the distances (m) between points (..., 3), with broadcasting, (...)."""
    difference = a - b
    xp = namespace(difference)
    length: Array = xp.sqrt(xp.einsum("...k,...k->...", difference, difference))
    return length
