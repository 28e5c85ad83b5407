"""Contrast: the reward of a bonus for states it has never seen over that for states it has seen.

    python -m benchmarks.contrast                   one-hot walks, continuous walks, images
    python -m benchmarks.contrast --robots          Franka and Kuka tasks
    ... --write                                     also writes benchmarks/results/contrast*.md

A bonus learns from windows of one half of a world and scores fresh windows of both halves. On
robots it learns from windows of noise (std 1, clamped) and scores those of the second half of a
scripted expert's path to its first success. 1 means that the bonus does not distinguish them. There
are 128 windows per training step; all bonuses have their defaults and ``normalize=True``. E3B
compares a step with its own episode: it follows 30 steps of the half that is seen, and is then
asked about one more step of each half.
"""

from __future__ import annotations

import argparse
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex import PAPER, RolloutWindows
from mimex.bonus import BONUSES, bonus_class
from mimex.bonus.base import EpisodicReward, IntrinsicReward
from mimex.bonus.masks import LastMask
from mimex.envs.experts import expert_for
from mimex.types import Window

RESULTS = Path(__file__).parent / "results"
SIDE, BATCH, HELD_OUT, AFTER = 10, 128, 1_000, (50, 200)
MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
LENGTH = 5
EPISODE, EPISODES = 30, 256  # steps that E3B follows before it is asked; parallel episodes

Floats = NDArray[np.float64]
Draw = Callable[[int, bool], Window]
"""Draws windows: how many, and whether from the part that is never seen."""


def walks(
    rng: np.random.Generator, count: int, far: bool, side: int = SIDE, turn: float = 1.0
) -> tuple[Floats, Tensor]:
    """Random walks ``(B, L, 2)`` in one half of a grid, and the moves that led to each place.

    Args:
        rng: Generator of positions and moves.
        count: Number of walks, B.
        far: Whether to walk in the other half.
        side: Number of cells along an edge of the grid.
        turn: Share of the steps that choose a new direction; the others continue.
    """
    low, high = (side // 2, side - 1) if far else (0, side // 2 - 1)
    place = np.stack([rng.integers(side, size=count), rng.integers(low, high + 1, size=count)], 1)
    places, moves = [place], [rng.integers(4, size=count)]
    for _ in range(LENGTH - 1):
        chosen = np.where(rng.random(count) < turn, rng.integers(4, size=count), moves[-1])
        moves.append(chosen)
        places.append((places[-1] + MOVES[chosen]).clip((0, low), (side - 1, high)))
    led = torch.nn.functional.one_hot(torch.as_tensor(np.stack(moves, 1)), 4).float()
    return np.stack(places, 1).astype(float), led


def one_hot(places: Floats, rng: np.random.Generator, side: int = SIDE) -> Tensor:
    """Return one-hot cells, 100 features by default."""
    cells = torch.as_tensor(places[..., 0] * side + places[..., 1]).long()
    return torch.nn.functional.one_hot(cells, side**2).float()


def continuous(places: Floats, rng: np.random.Generator) -> Tensor:
    """Return positions with noise, in [-1, 1], and their sines: six features."""
    x = torch.as_tensor(places + rng.normal(0, 0.1, places.shape)).float() / (SIDE / 2) - 1
    return torch.cat([x, (3 * x).sin(), (5 * x).cos()], dim=-1)


def picture(places: Floats, rng: np.random.Generator) -> Tensor:
    """Return random features of 20 x 20 images with a bright 3 x 3 square at the position."""
    rows = torch.arange(2 * SIDE)
    near = [(rows - 2 * torch.as_tensor(places[..., i, None])).abs() <= 1 for i in (0, 1)]
    image = (near[0][..., :, None] & near[1][..., None, :]).float().flatten(2)  # (B, L, 400)
    weights = torch.randn(400, 64, generator=torch.Generator().manual_seed(0)) / 3
    return (image @ weights).relu()


WORLDS: dict[str, Callable[[Floats, np.random.Generator], Tensor]] = {
    "one-hot": one_hot,
    "continuous": continuous,
    "picture": picture,
}

COMPARED = [name for name in BONUSES if name not in ("none", "constant", "count")]
TIME_MASKING: dict[str, Any] = {"mask_type": "time", "mask_ratio": 0.7}
PAPER_SETTINGS: dict[str, Any] = {"size": PAPER, "lr": 1e-4, **TIME_MASKING}

ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in COMPARED},
    "mimex, time masking": ("mimex", TIME_MASKING),
    "mimex, paper settings": ("mimex", PAPER_SETTINGS),
    "mimex, paper settings, lr 1e-3": ("mimex", {**PAPER_SETTINGS, "lr": 1e-3}),
    "mimex, actions": ("mimex", {"action_dim": 4}),
}
"""Every bonus with its defaults, and MIMEx with other settings."""


def make(name: str, see: Callable[..., Tensor] | None = None, **settings: Any) -> IntrinsicReward:
    """Return a bonus by its name; in a world of walks, whose moves are one-hot."""
    chosen: Any = bonus_class(name)
    if see is not None:
        kinds = {"discrete_obs": see is one_hot, "discrete": True}
        names = inspect.signature(chosen).parameters
        settings = {name: value for name, value in kinds.items() if name in names} | settings
    bonus: IntrinsicReward = chosen(length=LENGTH, normalize=True, **settings)
    return bonus


def contrasts(bonus: IntrinsicReward, draw: Draw, after: tuple[int, ...]) -> Iterator[float]:
    """Yield the mean reward for unseen windows over that for seen ones, after training steps."""
    for step in range(1, max(after) + 1):
        bonus.learn(draw(BATCH, False))
        if step in after:
            seen, unseen = (float(score(bonus, draw, new).mean()) for new in (False, True))
            yield unseen / max(seen, 1e-12)


def score(bonus: IntrinsicReward, draw: Draw, new: bool) -> Tensor:
    """Return the rewards of fresh windows."""
    if not isinstance(bonus, EpisodicReward):
        return bonus.reward(draw(HELD_OUT, new))
    for step in range(EPISODE):
        bonus.follow(draw(EPISODES, False), torch.full((EPISODES,), step == 0))
    return bonus.follow(draw(EPISODES, new), torch.zeros(EPISODES, dtype=torch.bool))


def drawn(see: Callable[..., Tensor], seed: int = 0, side: int = SIDE, turn: float = 1.0) -> Draw:
    """Return a function that draws windows of walks in a world."""
    rng = np.random.default_rng(seed)
    look = see if see is not one_hot else functools.partial(one_hot, side=side)

    def draw(count: int, new: bool) -> Window:
        places, moves = walks(rng, count, new, side, turn)
        return Window(look(places, rng), None, moves)

    return draw


def table(
    columns: dict[str, Any], rows: dict[str, Any], cell: Callable[..., Iterator[float]]
) -> str:
    """Return a table with one row per bonus, printed as it is made."""
    lines = [f"| bonus | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in rows.items():
        cells = (" / ".join(f"{c:.3g}" for c in cell(row, column)) for column in columns.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def walk_table() -> str:
    """Return the table of all bonuses on the three worlds."""
    return table(
        WORLDS, ROWS, lambda row, see: contrasts(make(row[0], see, **row[1]), drawn(see), AFTER)
    )


ONE_GOAL = {"goal_spread": 0.0, "episode_steps": 100}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    **{task: (task, {}) for task in ("FrankaReach", "FrankaPick", "KukaReach", "KukaPick")},
    "FrankaReach, far goal": ("FrankaReach", ONE_GOAL | {"goal_offset": (0.0, 0.0, 0.35)}),
    "KukaReach, far goal": ("KukaReach", ONE_GOAL | {"goal_offset": (0.0, 0.4, 0.4)}),
}
"""Tasks and their settings; the far goals are those of FrankaReachUp and KukaReachLeft."""

ROBOT_AFTER, ENVS, STEPS = (50, 200, 800), 64, 256

Row = tuple[str, int, dict[str, Any]]
"""Name of the bonus, stride of its windows, settings."""

ROBOT_ROWS: dict[str, Row] = {
    **{name: (name, 1, {}) for name in COMPARED},
    "mimex, time masking": ("mimex", 1, TIME_MASKING),
    "mimex, paper settings": ("mimex", 1, PAPER_SETTINGS),
    "mimex, time masking, stride 8, actions": ("mimex", 8, {"action_dim": True, **TIME_MASKING}),
    "the same, newest step masked": ("mimex", 8, {"action_dim": True, "mask": LastMask()}),
}


def play(name: str, *, expert: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return observations, actions, episode ends and what is scored, ``(M, N, ...)`` each."""
    task, settings = TASKS[name]
    env: Any = gymnasium.make_vec(
        f"mimex/{task}-v0", num_envs=ENVS, observation="oracle", **settings
    )
    observation, _ = env.reset(seed=1 if expert else 0)
    rng, solver = np.random.default_rng(0), expert_for(task)(env) if expert else None
    observations, actions, ends = [], [], []
    running, lengths = np.ones(ENVS, bool), np.zeros(ENVS, int)
    limit = 1_000 if expert else STEPS
    while len(ends) < limit and running.any():
        noise = rng.normal(size=env.action_space.shape).clip(-1, 1).astype(np.float32)
        action = noise if solver is None else solver.act(env)
        observations.append(observation.copy())
        actions.append(np.asarray(action, np.float32))
        observation, _, terminated, truncated, info = env.step(action)
        ends.append(terminated | truncated)
        if expert:
            lengths[running] = len(ends)
            running &= ~(ends[-1] | info["success"])
    env.close()
    age = np.arange(len(ends))[:, None]
    scored = (age >= lengths // 2) & (age < lengths) if expert else np.ones((len(ends), ENVS), bool)
    return (
        torch.as_tensor(np.stack(observations)).float(),
        torch.as_tensor(np.stack(actions)),
        torch.as_tensor(np.stack(ends)),
        torch.as_tensor(scored),
    )


def windows(task: str, stride: int, *, expert: bool) -> Window:
    """Return all windows without padding of the part that is scored, or trained on."""
    features, actions, ends, scored = play(task, expert=expert)
    found = RolloutWindows(LENGTH, ENVS, stride=stride).build(features, ends, actions=actions)
    full = (found.rows > 0).all(1) & scored.flatten()
    return found[full.nonzero().flatten()]


@functools.cache
def drawn_from_robot(task: str, stride: int) -> Draw:
    """Return a function that draws windows of noise, a fifth of them held out, or of the expert."""
    seen, unseen = (windows(task, stride, expert=expert) for expert in (False, True))
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(seen), generator=generator)
    held, learned = order[: len(order) // 5], order[len(order) // 5 :]

    def draw(count: int, new: bool) -> Window:
        if new:
            return unseen[torch.randint(len(unseen), (count,), generator=generator)]
        rows = learned if count == BATCH else held
        return seen[rows[torch.randint(len(rows), (count,), generator=generator)]]

    return draw


def robot_cell(row: Row, task: str) -> Iterator[float]:
    """Yield the contrasts of one bonus on one task."""
    name, stride, settings = row
    draw = drawn_from_robot(task, stride)
    actions = draw(1, True).actions
    assert actions is not None
    if settings.get("action_dim"):
        settings = settings | {"action_dim": actions.shape[2]}
    return contrasts(make(name, **settings), draw, ROBOT_AFTER)


def robot_table() -> str:
    """Return the table of all bonuses on the robot tasks."""
    return table({task: task for task in TASKS}, ROBOT_ROWS, robot_cell)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--robots", action="store_true", help="Franka and Kuka tasks instead of walks"
    )
    parser.add_argument("--write", action="store_true", help="write the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    name, made, after = "", walk_table, AFTER
    if options.robots:
        name, made, after = "robots", robot_table, ROBOT_AFTER
    text = (
        f"# Contrast: never seen over seen, after {' / '.join(map(str, after))} training steps"
        f"\n\n    python -m benchmarks.contrast{f' --{name}' * bool(name)} --write\n\n{made()}\n"
    )
    print(text)
    if options.write:
        (RESULTS / f"contrast{f'_{name}' * bool(name)}.md").write_text(text)


if __name__ == "__main__":
    main()
