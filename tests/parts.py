"""Small parts of agents for tests: readers of observations and writers of actions."""

import numpy as np
from gymnasium import spaces

from mimex.agents.actions import ActionAdapter
from mimex.agents.encoders import ObsAdapter


def reader(*shape, device="cpu"):
    """Of vectors ``(size,)``, or of pictures ``(C, H, W)``."""
    if len(shape) == 1:
        return ObsAdapter(spaces.Box(-np.inf, np.inf, shape, np.float32), device)
    return ObsAdapter(spaces.Box(0, 255, shape, np.uint8), device)


def picture_and_numbers(size, numbers):
    """Of a square picture, and numbers of a robot beside it."""
    return ObsAdapter(
        spaces.Dict(
            {
                "image": spaces.Box(0, 255, (3, size, size), np.uint8),
                "robot": spaces.Box(-np.inf, np.inf, (numbers,), np.float32),
            }
        )
    )


def actions(size):
    """Numbers from -1 to 1."""
    return ActionAdapter(spaces.Box(-1.0, 1.0, (size,), np.float32))
