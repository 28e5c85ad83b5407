"""Contrast: what a bonus says of states it has never seen, over what it says of those it has.

    python -m benchmarks.contrast                   one-hot walks, continuous walks, pictures
    python -m benchmarks.contrast --robots          Franka and Kuka tasks: noise seen, experts not
    ... --write                                     also writes benchmarks/results/contrast*.md

A bonus learns from windows of one half of a world (robots: of noise) and scores fresh windows of
that half and of the other one (robots: of the scripted expert's second half). 1 means that it does
not tell them apart. Walks: 200 steps of learning from 128 windows each.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import mimex
from mimex.bonus.base import IntrinsicReward
from mimex.types import Window

RESULTS = Path(__file__).parent / "results"
SIDE, BATCH, HELD_OUT, AFTER = 10, 128, 1_000, (50, 200)
MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
LENGTH = 5

Floats = NDArray[np.float64]


def walks(rng: np.random.Generator, count: int, far: bool) -> tuple[Floats, NDArray[np.int64]]:
    """Random walks ``(B, L, 2)`` in one half of a grid, and the moves that led to each place."""
    low, high = (SIDE // 2, SIDE - 1) if far else (0, SIDE // 2 - 1)
    place = np.stack([rng.integers(SIDE, size=count), rng.integers(low, high + 1, size=count)], 1)
    places, moves = [place], [np.zeros(count, np.int64)]
    for _ in range(LENGTH - 1):
        moves.append(rng.integers(4, size=count))
        place = (places[-1] + MOVES[moves[-1]]).clip((0, low), (SIDE - 1, high))
        places.append(place)
    return np.stack(places, 1).astype(float), np.stack(moves, 1)


def one_hot(places: Floats, rng: np.random.Generator) -> Tensor:
    """The cell of each place, one of a hundred."""
    cells = torch.as_tensor(places[..., 0] * SIDE + places[..., 1]).long()
    return torch.nn.functional.one_hot(cells, SIDE**2).float()


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

BONUSES: dict[str, Callable[[], IntrinsicReward]] = {
    "RND": lambda: mimex.RND(length=LENGTH, normalise=True),
    "ICM": lambda: mimex.ICM(None, 4, LENGTH, discrete=True, normalise=True),
    "pseudo-count": lambda: mimex.PseudoCount(length=LENGTH, normalise=True),
    "MIMEx": lambda: mimex.MIMEx(normalise=True),
    "MIMEx, 1e-3": lambda: mimex.MIMEx(normalise=True, lr=1e-3),
    "MIMEx, 1e-3, actions": lambda: mimex.MIMEx(normalise=True, lr=1e-3, action_dim=4),
}


def contrasts(
    bonus: IntrinsicReward, draw: Callable[[int, bool], Window], after: tuple[int, ...]
) -> Iterator[float]:
    """Never seen over seen, after so many steps of learning each."""
    for step in range(1, max(after) + 1):
        bonus.learn(draw(BATCH, False))
        if step in after:
            seen, unseen = (bonus.reward(draw(HELD_OUT, far)).mean() for far in (False, True))
            yield float(unseen / seen.clamp(min=1e-12))


def walk_rows() -> list[str]:
    """One row a bonus over the three worlds."""
    rows = [f"| bonus | {' | '.join(WORLDS)} |", "|---" * (len(WORLDS) + 1) + "|"]
    for name, make in BONUSES.items():
        cells = []
        for see in WORLDS.values():
            rng = np.random.default_rng(0)

            def draw(count: int, far: bool, see=see, rng=rng) -> Window:
                places, moves = walks(rng, count, far)
                return Window(see(places, rng), None, moves)

            cells.append(" / ".join(f"{c:.3g}" for c in contrasts(make(), draw, AFTER)))
        rows.append(f"| {name} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--robots", action="store_true", help="Franka and Kuka tasks")
    parser.add_argument("--write", action="store_true", help="write the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.robots:
        from benchmarks.contrast_robots import AFTER as ROBOT_AFTER
        from benchmarks.contrast_robots import robot_rows

        rows, after, name = robot_rows(), ROBOT_AFTER, "contrast_robots"
    else:
        rows, after, name = walk_rows(), AFTER, "contrast"
    steps = " / ".join(map(str, after))
    flag = " --robots" if options.robots else ""
    text = (
        f"# Contrast: never seen over seen, after {steps} steps of learning\n\n"
        f"    python -m benchmarks.contrast{flag} --write\n\n" + "\n".join(rows) + "\n"
    )
    print(text)
    if options.write:
        (RESULTS / f"{name}.md").write_text(text)


if __name__ == "__main__":
    main()
