"""Small games whose only difficulty is exploration: deep sea and ordered buttons (more: `motion`).

They cost microseconds a step, so that whole studies of bonuses fit into minutes. All say in
`info["success"]` whether the episode was solved, and can be saved and restored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mimex.envs.seeding import generator_states, generators, restored_generators
from mimex.envs.vector_step import laid_out, with_ended, with_masks

Array = NDArray[Any]
Rows = NDArray[np.intp]


class SmallGame(VectorEnv[Any, Any, Any]):
    """N copies of a game, which begin anew in the same step as they end.

    Attributes:
        episode_steps: Steps after which an episode is over.
        has_an_end: Whether that is part of the game; else it is cut off there (truncated).
        ends_when_solved: Whether a solved game is over, too.
        arrays: What the game is made of, each (N, ...), by name; `steps` and `success` are always
            there.

    Args:
        num_envs: How many copies.
        seen: What a player sees.
        actions: What there is to do.
        episode_steps: Steps after which an episode is over.
        state: Values of the game's arrays before it begins, by name.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration)
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }
    position_kind = "state"
    has_an_end = ends_when_solved = False

    def __init__(
        self,
        num_envs: int,
        seen: spaces.Box | spaces.Discrete | spaces.MultiDiscrete,
        actions: spaces.Discrete | spaces.Box,
        episode_steps: int,
        state: Mapping[str, Any],
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}, but must be 1 or more")
        self.num_envs, self.episode_steps = num_envs, episode_steps
        self.single_observation_space = seen
        self.single_action_space = actions
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.arrays: dict[str, Array] = {
            name: np.repeat(np.asarray(value)[None], num_envs, axis=0)
            for name, value in {"steps": 0, "success": 0, **state}.items()
        }
        self.generators = generators(None, num_envs)

    @abstractmethod
    def begin(self, rows: Rows) -> None:
        """Puts some games to their start."""

    @abstractmethod
    def play(self, actions: Array) -> tuple[Array, Array]:
        """Makes one move in every game: rewards (N,), and which are solved now, (N,)."""

    @abstractmethod
    def observe(self) -> Array:
        """Return what each player sees, (N, ...)."""

    @abstractmethod
    def positions(self) -> Array:
        """Return where each game is, (N, d), for coverage."""

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin all games; game i draws from a generator that depends on the seed and i alone."""
        if seed is not None:
            self.generators = generators(seed, self.num_envs)
        self._begin(np.arange(self.num_envs))
        return self.observe(), {}

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Make one move in every game."""
        rewards, solved = self.play(self._checked(np.asarray(actions)))
        self.arrays["success"] |= solved
        self.arrays["steps"] += 1
        late, never = self.arrays["steps"] >= self.episode_steps, np.zeros(self.num_envs, bool)
        terminated, truncated = (late, never) if self.has_an_end else (never, late)
        if self.ends_when_solved:
            terminated, truncated = terminated | solved, truncated & ~solved
        ended = terminated | truncated
        observation = self.observe()
        info: dict[str, Any] = {"success": self.arrays["success"].astype(bool)}
        if not ended.any():
            return observation, rewards, terminated, truncated, with_masks(info, ~never)
        rows = np.flatnonzero(ended)
        info = laid_out(with_ended(info, observation, rows), ended)
        self._begin(rows)
        return self.observe(), rewards, terminated, truncated, info

    def _checked(self, actions: Array) -> Array:
        """What was chosen; numbers outside a box are brought to its border."""
        space = self.single_action_space
        if isinstance(space, spaces.Discrete):
            right = bool(((actions >= 0) & (actions < space.n)).all())
            what = f"whole numbers from 0 to {space.n - 1}"
        else:
            right, what = bool(np.isfinite(actions).all()), f"rows of {space.shape} numbers"
        if actions.shape != self.action_space.shape or not right:
            raise ValueError(
                f"actions are {actions!r}, but {self.num_envs} environment(s) need as many {what}"
            )
        return actions.clip(space.low, space.high) if isinstance(space, spaces.Box) else actions

    def _begin(self, rows: Rows) -> None:
        for name in ("steps", "success"):
            self.arrays[name][rows] = 0
        self.begin(rows)

    def snapshot(self) -> dict[str, Array]:
        """Return what every running game is made of, (N, ...) by name, for `restore`.

        Where the time limit is part of the game, so is the number of steps.
        """
        left_out = ("success",) if self.has_an_end else ("steps", "success")
        return {name: array.copy() for name, array in self.arrays.items() if name not in left_out}

    def restore(self, rows: Rows, states: Mapping[str, Array]) -> Array:
        """Begin some games anew at states that `snapshot` gave; return their observations."""
        for name, array in self.arrays.items():
            array[rows] = states.get(name, 0)
        return self.observe()[rows]

    def get_state(self) -> dict[str, Any]:
        """Return all that the games need to continue bit for bit."""
        arrays = {name: array.copy() for name, array in self.arrays.items()}
        return {"generators": generator_states(self.generators), **arrays}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned."""
        self.generators = restored_generators(state["generators"])
        for name, array in self.arrays.items():
            array[:] = state[name]


def require_share(name: str, value: float) -> None:
    """Raise an error that names a setting which is no share."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value}, but must be a share from 0 to 1")


class DeepSea(SmallGame):
    """A boat sinks one row a step and drifts left or right; treasure lies at the far lower right.

    Only going right in every one of `size` steps finds it, each of which costs a little, and which
    of the two actions goes right is another in every cell (Osband et al., 2020, bsuite): an agent
    that tries actions at random needs some 2^size episodes. The observation is the cell's number.

    Args:
        num_envs: How many copies.
        size: Rows and columns of the sea.
        mapping: Seed of which action goes right in which cell, the same for all copies.
        move_cost: What going right costs over an episode, in treasures.
        dense: Pay for going right, a treasure over an episode, in place of the cost.
        near_starts: Share of episodes that begin anywhere along the way to the treasure.
    """

    has_an_end = True

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
        require_share("near_starts", near_starts)
        seen, actions = spaces.Discrete(size * size + 1), spaces.Discrete(2)
        super().__init__(num_envs, seen, actions, size, {"column": 0})
        self.size, self.near_starts = size, near_starts
        self._right_pays = (1.0 if dense else -move_cost) / size
        self._right = np.random.default_rng(mapping).integers(2, size=(size, size))

    def begin(self, rows: Rows) -> None:
        """At the upper left, or for some on the diagonal that leads to the treasure."""
        self.arrays["column"][rows] = 0
        for row in rows if self.near_starts else ():
            if self.generators[row].random() < self.near_starts:
                along = self.generators[row].integers(self.size)
                self.arrays["steps"][row] = self.arrays["column"][row] = along

    def play(self, actions: Array) -> tuple[Array, Array]:
        """Sinks by a row; the treasure is 1."""
        row, column = self.arrays["steps"], self.arrays["column"]
        right = actions == self._right[row, column]
        found = right & (column == self.size - 1) & (row == self.size - 1)
        rewards = found + self._right_pays * right
        self.arrays["column"] = np.clip(column + np.where(right, 1, -1), 0, self.size - 1)
        return rewards, found

    def observe(self) -> Array:
        """Return the number of the cell; the last one after the last row."""
        row, column = self.arrays["steps"], self.arrays["column"]
        return np.where(row < self.size, row * self.size + column, self.size**2)

    def positions(self) -> Array:
        """Return row and column."""
        return np.stack([self.arrays["steps"], self.arrays["column"]], axis=1)


class OrderedButtons(SmallGame):
    """On a ring of cells, press button A, then button B on the other side in time.

    The actions are left, right and press. Every state is soon old to an agent that moves at random;
    what it never does is to walk from A to B without turning back: only the sequence is new. A
    policy without memory solves it: walk on to the right, and press where there is a button. The
    observation is the cell, and which of two lamps is lit: each is in the step after its button was
    pressed.

    Args:
        num_envs: How many copies.
        cells: Of the ring, an even number.
        slack: Steps that the way from A to B may take beyond the shortest, pressing included.
        episode_steps: Steps of an episode; by default three times around the ring.
        press_cost: What a press costs, in rewards for B in time.
        dense: Pay for A, too (0.1, but not while B is due), and for each step to the right (0.01),
            which is the way that needs no memory.
        near_starts: Share of episodes that begin anywhere between A, just pressed, and B.
        show_time: Whether the steps that are left for B are seen, too: all that the game knows.
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
            raise ValueError(f"cells is {cells}, but must be an even number, 4 or more")
        if slack < 0:
            raise ValueError(f"slack is {slack}, but must be 0 or more")
        require_share("near_starts", near_starts)
        self._allowed = cells // 2 + 1 + slack  # steps after A was pressed in which B counts
        self._seen = {"cell": cells, "lamp": 3} | (
            {"time_left": self._allowed + 1} if show_time else {}
        )
        state = {"cell": 0, "lamp": 0, "time_left": 0}
        seen, actions = spaces.MultiDiscrete([*self._seen.values()]), spaces.Discrete(3)
        super().__init__(num_envs, seen, actions, episode_steps or 3 * cells, state)
        self.cells, self.press_cost = cells, press_cost
        self.dense, self.near_starts = dense, near_starts

    def begin(self, rows: Rows) -> None:
        """Anywhere on the ring, nothing pressed; or for some on the way from A to B."""
        draws = [self.generators[row].integers(self.cells) for row in rows]
        self.arrays["cell"][rows] = draws
        for name in ("lamp", "time_left"):
            self.arrays[name][rows] = 0
        for row in rows if self.near_starts else ():
            if self.generators[row].random() < self.near_starts:
                along = self.generators[row].integers(self.cells // 2 + 1)
                self.arrays["cell"][row] = along
                self.arrays["time_left"][row] = self._allowed - along

    def play(self, actions: Array) -> tuple[Array, Array]:
        """Walks or presses; B in time is 1, once for every A."""
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
        """Return the cell, the lamp (none, A's or B's) and, if it is shown, the time."""
        return np.stack([self.arrays[name] for name in self._seen], axis=1)

    def positions(self) -> Array:
        """Return the cell."""
        return self.arrays["cell"][:, None].copy()
