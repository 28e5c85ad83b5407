"""What all tasks have in common: a task is arrays in, arrays out."""

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
    """What one control step led to, in every environment.

    Attributes:
        terms: Value of each reward term before its weight, by name, (N,) each.
        met: Whether the success condition holds now, (N,).
        fallen: Whether the object fell, which ends the episode, (N,).
        touched: Whether the object is being moved, (N,); None where there is none to be moved.
    """

    terms: dict[str, Array]
    met: Mask
    fallen: Mask
    touched: Mask | None = None


class Task(ABC):
    """Places objects at a reset, and turns the state into reward terms and observations.

    Attributes:
        draws: How many uniform numbers in [-1, 1] one reset needs.
        steps: Of an episode, at 60 Hz.
        sparse_steps: The same without the dense reward, by end effector, where it differs.
        weights: Of the reward terms except the action penalty, by end effector.
        own_settings: Names of the settings that this task uses and not every other one does.
        explored: Observation groups that the task is about: by default a bonus sees these.
        view: Where the camera of videos is, and what it looks at (m).
        memory: Arrays (N, ...) by name that the task keeps within an episode; saved with the state.
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
        """Add what the task needs beside the robot to a scene: its furniture, objects and goal."""

    @staticmethod
    @abstractmethod
    def success_words(robot: Robot) -> str:
        """Return when a step counts for success, in a few words."""

    @abstractmethod
    def place(self, rows: NDArray[np.int32], unit: Array) -> None:
        """Place objects and goals of some environments, given draws in [-1, 1] (rows, draws)."""

    @abstractmethod
    def evaluate(self) -> Outcome:
        """Return reward terms (all but the action's), success condition and fall."""

    @abstractmethod
    def oracle(self, rows: Rows) -> dict[str, Array]:
        """Return the groups that the oracle observation adds to proprioception, (rows, D) each.

        Names mean the same in every task: "hand" (palm and grasp points), "object" (cube or
        handle), "goal", and vectors between them, such as "hand_to_object".
        """

    def fingers(self, rows: Rows = ALL) -> Array:
        """Return the grasp points of the fingers (m), (rows, fingers, 3)."""
        return self.engine.sites(self._finger_ids, rows)

    def grasp_groups(self, rows: Rows, target: Array) -> dict[str, Array]:
        """Return the hand (palm, then fingers), the object, and object - each finger."""
        fingers = self.fingers(rows)  # (rows, fingers, 3)
        away = target[:, None] - fingers
        hand = fingers.reshape(len(fingers), -1)
        if self.robot.palm is not None:
            palm = self.engine.site(self.robot.palm)[rows]
            hand = namespace(hand).concatenate([palm, hand], 1)
        return {"hand": hand, "object": target, "hand_to_object": away.reshape(len(fingers), -1)}


def approach_terms(nearness: Array, gripper_term: str) -> dict[str, Array]:
    """Return the terms that draw the fingers to the target, given nearness (N, fingers).

    A gripper's two fingers share one term; a hand has one for its fingers and one for the thumb,
    which comes last.
    """
    if nearness.shape[1] == 2:
        return {gripper_term: nearness[:, 0] + nearness[:, 1]}
    index, middle, ring, thumb = nearness.T
    return {"finger_distance": index + middle + ring, "thumb_distance": copied(thumb)}


def distances(a: Array, b: Array) -> Array:
    """Return the distances of points (..., 3) that broadcast against each other (m), (...)."""
    difference = a - b
    xp = namespace(difference)
    length: Array = xp.sqrt(xp.einsum("...k,...k->...", difference, difference))
    return length
