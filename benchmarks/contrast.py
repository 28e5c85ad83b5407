"""Contrast: what a bonus says of states it has never seen, over what it says of those it has.

    python -m benchmarks.contrast                   one-hot walks, continuous walks, pictures
    python -m benchmarks.contrast --kinds           MIMEx on other one-hot walks: sizes, seeds
    python -m benchmarks.contrast --robots          Franka and Kuka tasks: noise seen, experts not
    ... --write                                     also writes benchmarks/results/contrast*.md

A bonus learns from windows of one half of a world (robots: of noise) and scores fresh windows of
that half and of the other one (robots: of the scripted expert's second half). 1 means that it does
not tell them apart. 128 windows a step of learning. All bonuses have their defaults and
``normalise=True``. E3B compares a step with its own episode: it follows 30 steps of the half that
is seen, and is then asked about one more of each half.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mimex import PAPER
from mimex.bonus import BONUSES, bonus_class
from mimex.bonus.base import EpisodicReward, IntrinsicReward
from mimex.types import Window

RESULTS = Path(__file__).parent / "results"
SIDE, BATCH, HELD_OUT, AFTER = 10, 128, 1_000, (50, 200)
MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
LENGTH = 5
EPISODE, EPISODES = 30, 256  # steps that E3B follows before it is asked, side by side

Floats = NDArray[np.float64]
Draw = Callable[[int, bool], Window]
"""Fresh windows: how many, and whether of what is never seen."""


def walks(
    rng: np.random.Generator, count: int, far: bool, side: int = SIDE, turn: float = 1.0
) -> tuple[Floats, Tensor]:
    """Random walks ``(B, L, 2)`` in one half of a grid, and the moves that led to each place.

    Args:
        rng: Of places and moves.
        count: Walks, B.
        far: In the other half.
        side: Cells along an edge of the grid.
        turn: Share of the steps that choose a direction anew; the others go on.
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
    """The cell of each place, one of a hundred."""
    cells = torch.as_tensor(places[..., 0] * side + places[..., 1]).long()
    return torch.nn.functional.one_hot(cells, side**2).float()


def continuous(places: Floats, rng: np.random.Generator) -> Tensor:
    """Places with noise, in [-1, 1], and their sines: six numbers."""
    x = torch.as_tensor(places + rng.normal(0, 0.1, places.shape)).float() / (SIDE / 2) - 1
    return torch.cat([x, (3 * x).sin(), (5 * x).cos()], dim=-1)


def picture(places: Floats, rng: np.random.Generator) -> Tensor:
    """Pictures of 20 x 20 with a bright square of 3 x 3 at the place, through random features."""
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

WHOLE_STEPS: dict[str, Any] = {"mask_type": "time", "mask_ratio": 0.7}
THE_PAPERS: dict[str, Any] = {"size": PAPER, "lr": 1e-4, **WHOLE_STEPS}

ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in BONUSES if name not in ("none", "constant", "count")},
    "mimex, whole steps": ("mimex", WHOLE_STEPS),
    "mimex, the paper's": ("mimex", THE_PAPERS),
    "mimex, the paper's, lr 1e-3": ("mimex", {**THE_PAPERS, "lr": 1e-3}),
    "mimex, actions": ("mimex", {"action_dim": 4}),
}
"""Every bonus there is by its defaults, and MIMEx with other settings."""


def make(
    kind: str | type[IntrinsicReward], see: Callable[..., Tensor] | None = None, **settings: Any
) -> IntrinsicReward:
    """A bonus by its name, or of a class; in a world of walks, whose moves are one-hot."""
    chosen: Any = bonus_class(kind) if isinstance(kind, str) else kind
    if see is not None:
        kinds = {"discrete_obs": see is one_hot, "discrete": True}
        names = inspect.signature(chosen).parameters
        settings = {name: value for name, value in kinds.items() if name in names} | settings
    bonus: IntrinsicReward = chosen(length=LENGTH, normalise=True, **settings)
    return bonus


def contrasts(bonus: IntrinsicReward, draw: Draw, after: tuple[int, ...]) -> Iterator[float]:
    """Never seen over seen, after so many steps of learning each."""
    for step in range(1, max(after) + 1):
        bonus.learn(draw(BATCH, False))
        if step in after:
            seen, unseen = (float(score(bonus, draw, new).mean()) for new in (False, True))
            yield unseen / max(seen, 1e-12)


def score(bonus: IntrinsicReward, draw: Draw, new: bool) -> Tensor:
    """What a bonus says of fresh windows."""
    if not isinstance(bonus, EpisodicReward):
        return bonus.reward(draw(HELD_OUT, new))
    for step in range(EPISODE):
        bonus.follow(draw(EPISODES, False), torch.full((EPISODES,), step == 0))
    return bonus.follow(draw(EPISODES, new), torch.zeros(EPISODES, dtype=torch.bool))


def drawn(see: Callable[..., Tensor], seed: int = 0, side: int = SIDE, turn: float = 1.0) -> Draw:
    """Windows of walks in a world."""
    rng = np.random.default_rng(seed)
    look = see if see is not one_hot else functools.partial(one_hot, side=side)

    def draw(count: int, new: bool) -> Window:
        places, moves = walks(rng, count, new, side, turn)
        return Window(look(places, rng), None, moves)

    return draw


def table(
    columns: dict[str, Any], rows: dict[str, Any], cell: Callable[..., Iterator[float]]
) -> str:
    """A row a bonus, printed as it is made."""
    lines = [f"| bonus | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in rows.items():
        cells = (" / ".join(f"{c:.3g}" for c in cell(row, column)) for column in columns.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def walk_table() -> str:
    """All bonuses on the three worlds."""
    return table(
        WORLDS, ROWS, lambda row, see: contrasts(make(row[0], see, **row[1]), drawn(see), AFTER)
    )


def kinds_table() -> str:
    """MIMEx by its defaults on one-hot walks of other sizes, kinds and seeds."""
    sizes = {f"{side} x {side}": side for side in (6, 10, 16)}
    walked = itertools.product((1.0, 0.2), range(3))
    rows = {f"mimex, turns {turn:.0%}, seed {seed}": (turn, seed) for turn, seed in walked}
    return table(
        sizes,
        rows,
        lambda row, side: contrasts(
            make("mimex", one_hot, seed=row[1]), drawn(one_hot, row[1], side, row[0]), AFTER
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", action="store_true", help="MIMEx on other one-hot walks")
    parser.add_argument("--robots", action="store_true", help="Franka and Kuka tasks")
    parser.add_argument("--write", action="store_true", help="write the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    name, made, after = "", walk_table, AFTER
    if options.kinds:
        name, made = "kinds", kinds_table
    if options.robots:
        from benchmarks.contrast_robots import AFTER as ROBOT_AFTER
        from benchmarks.contrast_robots import robot_table

        name, made, after = "robots", robot_table, ROBOT_AFTER
    text = (
        f"# Contrast: never seen over seen, after {' / '.join(map(str, after))} steps of learning"
        f"\n\n    python -m benchmarks.contrast{f' --{name}' * bool(name)} --write\n\n{made()}\n"
    )
    print(text)
    if options.write:
        (RESULTS / f"contrast{f'_{name}' * bool(name)}.md").write_text(text)


if __name__ == "__main__":
    main()
