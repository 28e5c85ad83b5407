"""Small vectorized exploration problems: DeepSea, OrderedButtons and FlagCar.

A step costs microseconds, so a study of several bonuses takes minutes. Each environment reports
`info["success"]` and can be saved and restored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import MountainCarEnv
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mimex.envs.seeding import generator_states, generators, restored_generators
from mimex.envs.vector_step import laid_out, with_ended, with_masks

Array = NDArray[Any]
Rows = NDArray[np.intp]


class SmallGame(VectorEnv[Any, Any, Any]):
    """N parallel copies of a small game, with autoreset in the same step.

    Attributes:
        episode_steps: Length of an episode.
        time_limit_terminates: Whether that length is a termination; otherwise a truncation.
        success_terminates: Whether success terminates the episode.
        arrays: State arrays (N, ...) by name, including `steps` and `success`.

    Args:
        num_envs: Number of parallel environments.
        observation_space: Of one environment.
        actions: Number of discrete actions.
        episode_steps: Length of an episode.
        state: Initial values of the state arrays by name.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration)
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }
    position_kind = "state"
    time_limit_terminates = success_terminates = False

    def __init__(
        self,
        num_envs: int,
        observation_space: spaces.Space[Any],
        actions: int,
        episode_steps: int,
        state: Mapping[str, Any],
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}, but must be 1 or more")
        self.num_envs, self.episode_steps = num_envs, episode_steps
        self._actions = actions
        self.single_observation_space = observation_space
        self.single_action_space = spaces.Discrete(actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.arrays: dict[str, Array] = {
            name: np.repeat(np.asarray(value)[None], num_envs, axis=0)
            for name, value in {"steps": 0, "success": 0, **state}.items()
        }
        self.generators = generators(None, num_envs)

    @abstractmethod
    def reset_rows(self, rows: Rows) -> None:
        """Set some games to their initial state."""

    @abstractmethod
    def advance(self, actions: Array) -> tuple[Array, Array]:
        """Take one step in every game; return rewards (N,) and which are solved, (N,)."""

    @abstractmethod
    def observe(self) -> Array:
        """Return the observations, (N, ...)."""

    @abstractmethod
    def positions(self) -> Array:
        """Return the positions for coverage, (N, d)."""

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start all games; the generator of game i depends only on the seed and i."""
        if seed is not None:
            self.generators = generators(seed, self.num_envs)
        self._start(np.arange(self.num_envs))
        return self.observe(), {}

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Take one step in every game; reset those whose episode ended."""
        rewards, solved = self.advance(self._checked(np.asarray(actions)))
        self.arrays["success"] |= solved
        self.arrays["steps"] += 1
        late, never = self.arrays["steps"] >= self.episode_steps, np.zeros(self.num_envs, bool)
        terminated, truncated = (late, never) if self.time_limit_terminates else (never, late)
        if self.success_terminates:
            terminated, truncated = terminated | solved, truncated & ~solved
        ended = terminated | truncated
        observation = self.observe()
        info: dict[str, Any] = {"success": self.arrays["success"].astype(bool)}
        if not ended.any():
            return observation, rewards, terminated, truncated, with_masks(info, ~never)
        rows = np.flatnonzero(ended)
        info = laid_out(with_ended(info, observation, rows), ended)
        self._start(rows)
        return self.observe(), rewards, terminated, truncated, info

    def _checked(self, actions: Array) -> Array:
        """Return the actions (N,), or raise if there are too few or one is out of range."""
        in_range = bool(((actions >= 0) & (actions < self._actions)).all())
        if actions.shape != self.action_space.shape or not in_range:
            raise ValueError(
                f"actions are {actions!r}, but {self.num_envs} environment(s) need one "
                f"integer from 0 to {self._actions - 1} each"
            )
        return actions

    def _start(self, rows: Rows) -> None:
        for name in ("steps", "success"):
            self.arrays[name][rows] = 0
        self.reset_rows(rows)

    def snapshot(self) -> dict[str, Array]:
        """Return the state of every running game, (N, ...) by name, for `restore`.

        The step count is included if the time limit terminates the game.
        """
        left_out = ("success",) if self.time_limit_terminates else ("steps", "success")
        return {name: array.copy() for name, array in self.arrays.items() if name not in left_out}

    def restore(self, rows: Rows, states: Mapping[str, Array]) -> Array:
        """Start new episodes at states from `snapshot`; return their observations."""
        for name, array in self.arrays.items():
            array[rows] = states.get(name, 0)
        return self.observe()[rows]

    def get_state(self) -> dict[str, Any]:
        """Return the full state, for an exact restore."""
        arrays = {name: array.copy() for name, array in self.arrays.items()}
        return {"generators": generator_states(self.generators), **arrays}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `get_state`."""
        self.generators = restored_generators(state["generators"])
        for name, array in self.arrays.items():
            array[:] = state[name]


def require_fraction(name: str, value: float) -> None:
    """Raise ValueError if a setting is not a fraction in [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value}, but must be a fraction from 0 to 1")


class DeepSea(SmallGame):
    """DeepSea (Osband et al., 2020, bsuite): descend a grid one row per step, moving left or right.

    The treasure is in the lower right corner. It is reached only by moving right in each of the
    `size` steps, each at a small cost, and the action that moves right differs from cell to cell.
    Random actions need about 2^size episodes. The observation is the index of the cell.

    Args:
        num_envs: Number of parallel environments.
        size: Number of rows and columns.
        mapping: Seed of the action that moves right in each cell, the same in all environments.
        move_cost: Cost of moving right over a whole episode; the treasure is worth 1.
        dense: Reward moving right, with 1 over a whole episode, instead of the cost.
        near_starts: Fraction of episodes that start on the path to the treasure.
    """

    time_limit_terminates = True

    def __init__(
        self,
        num_envs: int = 1,
        size: int = 10,
        mapping: int = 0,
        move_cost: float = 0.01,
        dense: bool = False,
        near_starts: float = 0.0,
    ) -> None:
        if size < 2:
            raise ValueError(f"size is {size}, but must be 2 or more")
        require_fraction("near_starts", near_starts)
        super().__init__(num_envs, spaces.Discrete(size * size + 1), 2, size, {"column": 0})
        self.size, self.near_starts = size, near_starts
        self._right_reward = (1.0 if dense else -move_cost) / size
        self._right = np.random.default_rng(mapping).integers(2, size=(size, size))

    def reset_rows(self, rows: Rows) -> None:
        """Start in the upper left corner, or on the diagonal that leads to the treasure."""
        self.arrays["column"][rows] = 0
        for row in rows if self.near_starts else ():
            if self.generators[row].random() < self.near_starts:
                along = self.generators[row].integers(self.size)
                self.arrays["steps"][row] = self.arrays["column"][row] = along

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """Descend by one row; the treasure gives a reward of 1."""
        row, column = self.arrays["steps"], self.arrays["column"]
        right = actions == self._right[row, column]
        found = right & (column == self.size - 1) & (row == self.size - 1)
        rewards = found + self._right_reward * right
        self.arrays["column"] = np.clip(column + np.where(right, 1, -1), 0, self.size - 1)
        return rewards, found

    def observe(self) -> Array:
        """Return the index of the cell; after the last row, size**2."""
        row, column = self.arrays["steps"], self.arrays["column"]
        return np.where(row < self.size, row * self.size + column, self.size**2)

    def positions(self) -> Array:
        """Return row and column, (N, 2)."""
        return np.stack([self.arrays["steps"], self.arrays["column"]], axis=1)


class OrderedButtons(SmallGame):
    """On a ring of cells, press button A, then button B on the opposite side within a time limit.

    The actions are left, right and press. Random actions soon visit every state, but they do not
    move from A to B without turning back: only the sequence is novel. A memoryless policy solves
    it: always move right, and press at each button. The observation is the cell and which lamp is
    lit (none, A or B); a lamp is lit for one step after its button was pressed.

    Args:
        num_envs: Number of parallel environments.
        cells: Number of cells of the ring, even.
        slack: Steps allowed from A to B beyond the minimum.
        episode_steps: Length of an episode; by default three times the number of cells.
        press_cost: Cost of a press; B in time is worth 1.
        dense: Also reward A (0.1, unless B is due) and each step to the right (0.01), the
            direction that needs no memory.
        near_starts: Fraction of episodes that start between A, just pressed, and B.
        show_time: Whether the observation includes the steps left for B, which makes the state
            fully observed.
    """

    LEFT, RIGHT, PRESS = range(3)

    def __init__(
        self,
        num_envs: int = 1,
        cells: int = 20,
        slack: int = 2,
        episode_steps: int | None = None,
        press_cost: float = 0.001,
        dense: bool = False,
        near_starts: float = 0.0,
        show_time: bool = False,
    ) -> None:
        if cells < 4 or cells % 2:
            raise ValueError(f"cells is {cells}, but must be even and at least 4")
        if slack < 0:
            raise ValueError(f"slack is {slack}, but must be 0 or more")
        require_fraction("near_starts", near_starts)
        self._allowed = cells // 2 + 1 + slack  # steps after A in which B counts
        self._observed = {"cell": cells, "lamp": 3} | (
            {"time_left": self._allowed + 1} if show_time else {}
        )
        state = {"cell": 0, "lamp": 0, "time_left": 0}
        space = spaces.MultiDiscrete([*self._observed.values()])
        super().__init__(num_envs, space, 3, episode_steps or 3 * cells, state)
        self.cells, self.press_cost = cells, press_cost
        self.dense, self.near_starts = dense, near_starts

    def reset_rows(self, rows: Rows) -> None:
        """Start anywhere on the ring with nothing pressed, or between A and B."""
        draws = [self.generators[row].integers(self.cells) for row in rows]
        self.arrays["cell"][rows] = draws
        for name in ("lamp", "time_left"):
            self.arrays[name][rows] = 0
        for row in rows if self.near_starts else ():
            if self.generators[row].random() < self.near_starts:
                along = self.generators[row].integers(self.cells // 2 + 1)
                self.arrays["cell"][row] = along
                self.arrays["time_left"][row] = self._allowed - along

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """Move or press; B in time gives a reward of 1, once per A."""
        cell, left = self.arrays["cell"], self.arrays["time_left"]
        press = actions == self.PRESS
        first, second = press & (cell == 0), press & (cell == self.cells // 2)
        due, in_time = left > 0, second & (left > 0)
        left = np.maximum(left - 1, 0)
        self.arrays["time_left"] = np.where(first, self._allowed, np.where(in_time, 0, left))
        self.arrays["lamp"] = first + 2 * second
        move = (actions == self.RIGHT).astype(np.int64) - (actions == self.LEFT)
        self.arrays["cell"] = (cell + move) % self.cells
        rewards = in_time - self.press_cost * press
        if self.dense:
            rewards += 0.1 * (first & ~due) + 0.01 * (move > 0)
        return rewards, in_time

    def observe(self) -> Array:
        """Return cell, lamp and, with `show_time`, the steps left, (N, 2 or 3)."""
        return np.stack([self.arrays[name] for name in self._observed], axis=1)

    def positions(self) -> Array:
        """Return the cell, (N, 1)."""
        return self.arrays["cell"][:, None].copy()


class FlagCar(SmallGame):
    """Gymnasium's MountainCar with a reward of 1 at the flag and 0 everywhere else.

    The engine is too weak to climb the slope directly: the car has to build up momentum. The
    published reward of -1 per step is a hint to hurry; here there is no signal before the flag.

    The dynamics are Gymnasium's with its constants, applied to all copies at once. A loop over
    64 `MountainCarEnv` takes 30 times as long per step.

    Args:
        num_envs: Number of parallel environments.
        episode_steps: Steps until truncation; the default is Gymnasium's.
    """

    success_terminates = True

    def __init__(self, num_envs: int = 1, episode_steps: int = 200) -> None:
        self.car = MountainCarEnv()
        state = {"position": 0.0, "velocity": 0.0}
        super().__init__(num_envs, self.car.observation_space, 3, episode_steps, state)

    def reset_rows(self, rows: Rows) -> None:
        """Start at rest near the bottom of the valley."""
        draws = [self.generators[row].uniform(-0.6, -0.4) for row in rows]
        self.arrays["position"][rows], self.arrays["velocity"][rows] = draws, 0.0

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """Push left (0), not at all (1) or right (2)."""
        car, position, velocity = self.car, self.arrays["position"], self.arrays["velocity"]
        velocity = velocity + (actions - 1) * car.force - car.gravity * np.cos(3 * position)
        velocity = np.clip(velocity, -car.max_speed, car.max_speed)
        position = np.clip(position + velocity, car.min_position, car.max_position)
        velocity = np.where((position == car.min_position) & (velocity < 0), 0.0, velocity)
        self.arrays["position"], self.arrays["velocity"] = position, velocity
        found = position >= car.goal_position
        return found.astype(np.float64), found

    def observe(self) -> Array:
        """Return position and velocity, (N, 2) float32."""
        return self.positions().astype(np.float32)

    def positions(self) -> Array:
        """Return position and velocity, (N, 2)."""
        return np.stack([self.arrays["position"], self.arrays["velocity"]], axis=1)
