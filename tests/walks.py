"""Random walks in one half of a grid, as one-hot windows."""

import numpy as np
import torch
from torch.nn.functional import one_hot

from mimex import Window

LENGTH = 5
MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])


def walk(rng, count, *, far=False, side=10, turn=1.0, integers=False):
    """Windows of walks, in the other half if ``far``.

    A step chooses a new direction with probability ``turn``.
    """
    low, high = (side // 2, side - 1) if far else (0, side // 2 - 1)
    cell = np.stack([rng.integers(side, size=count), rng.integers(low, high + 1, size=count)], 1)
    cells, move = [cell], rng.integers(4, size=count)
    for _ in range(LENGTH - 1):
        move = np.where(rng.random(count) < turn, rng.integers(4, size=count), move)
        cells.append((cells[-1] + MOVES[move]).clip((0, low), (side - 1, high)))
    codes = torch.as_tensor(np.stack(cells, 1) @ [side, 1])
    return Window(codes if integers else one_hot(codes, side**2).float())
