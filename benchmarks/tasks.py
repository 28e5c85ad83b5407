"""Small tasks that cost little to step, for benchmarks of bonuses in other people's agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Env = gymnasium.Env[Any, Any]


class FlagOnly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """MountainCar that pays 1 at the flag and nothing before."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(terminated), terminated, truncated, info


class UprightOnly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pendulum that pays 1 a step while it stands within 18 degrees of upright."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(observation[0] > 0.95), terminated, truncated, info


class Maze(gymnasium.Env[Any, Any]):
    """Four rooms of 6 x 6 cells with a door between neighbours; pays 1 in the far corner.

    The observation is the number of the cell. A random walk reaches the corner in about one of
    thirty episodes.
    """

    SIZE, LIMIT = 13, 150  # cells a side, with the walls; steps an episode
    MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(self.SIZE**2)
        self.action_space = spaces.Discrete(4)
        self.wall = np.zeros((self.SIZE, self.SIZE), bool)
        self.wall[6] = self.wall[:, 6] = True
        for door in ((6, 2), (6, 10), (2, 6), (10, 6)):
            self.wall[door] = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.age = (0, 0), 0
        return self._cell, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        move = self.MOVES[int(action)]
        row, column = (
            int(np.clip(p + m, 0, self.SIZE - 1)) for p, m in zip(self.place, move, strict=True)
        )
        if not self.wall[row, column]:
            self.place = (row, column)
        self.age += 1
        found = self.place == (self.SIZE - 1, self.SIZE - 1)
        return self._cell, float(found), found, self.age >= self.LIMIT, {}

    @property
    def _cell(self) -> int:
        return self.place[0] * self.SIZE + self.place[1]


class GoalPoint(gymnasium.Env[Any, Any]):
    """A point moves to a goal, and pays its distance at every step; the observation is a Dict."""

    SPEED, NEAR = 0.1, 0.1  # units a step; distance that counts as being there

    def __init__(self) -> None:
        box = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = spaces.Dict({"place": box, "goal": box})
        self.action_space = box

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        return self._seen, {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.place = np.clip(self.place + self.SPEED * np.clip(action, -1, 1), -1, 1)
        distance = float(np.linalg.norm(self.place - self.goal))
        return self._seen, -distance, False, False, {"success": distance < self.NEAR}

    @property
    def _seen(self) -> dict[str, Any]:
        return {"place": self.place.astype(np.float32), "goal": self.goal.astype(np.float32)}


gymnasium.register("GoalPoint-v0", GoalPoint, max_episode_steps=50)

TASKS: dict[str, Callable[[], Env]] = {
    "flag": lambda: FlagOnly(gymnasium.make("MountainCar-v0")),
    "acrobot": lambda: gymnasium.make("Acrobot-v1"),
    "upright": lambda: UprightOnly(gymnasium.make("Pendulum-v1")),
    "maze": lambda: gymnasium.wrappers.TimeLimit(Maze(), Maze.LIMIT),
    "cartpole": lambda: gymnasium.make("CartPole-v1"),
    "pendulum": lambda: gymnasium.make("Pendulum-v1"),
    "mountaincar": lambda: gymnasium.make("MountainCar-v0"),
}
"""By name: four that need exploration, then three that pay at every step."""

TITLES = {
    "flag": "MountainCar, reward at the flag",
    "acrobot": "Acrobot",
    "upright": "Pendulum, reward upright",
    "maze": "four rooms, one-hot",
    "cartpole": "CartPole",
    "pendulum": "Pendulum",
    "mountaincar": "MountainCar",
}
