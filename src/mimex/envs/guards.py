"""Guards against actions that make no sense and simulations that lost their footing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimex.envs.arrays import namespace, to_numpy

Array = NDArray[Any]


def checked_actions(actions: Any, shape: tuple[int, int], steps: Array) -> Array:
    """Return the actions (N, A), or refuse them with the environment's index.

    Args:
        actions: What the caller passed to `step`, as the engine's numbers.
        shape: Number of environments and of joints.
        steps: Steps that each environment's episode has behind it, (N,).
    """
    if actions.shape != shape:
        raise ValueError(
            f"actions has shape {tuple(actions.shape)}, but {shape[0]} environment(s) with "
            f"{shape[1]} joints need {shape}"
        )
    finite = namespace(actions).isfinite(actions)
    if not finite.all():
        env, joint = np.argwhere(~to_numpy(finite))[0]
        raise ValueError(
            f"actions[{env}, {joint}] is {actions[env, joint]} (environment {env}, episode step "
            f"{steps[env]}), but every number must be finite; look for a diverged policy"
        )
    checked: Array = actions
    return checked


class UnstableRecorder:
    """Saves the states that simulations failed from, one .npz file each.

    A file holds the state before the step ("state", what `Engine.restore` takes as one row), the
    joint targets of the step ("targets") and a note as JSON ("note").

    Args:
        folder: Where to write, created when needed; None writes nothing.
        task: The task's name, which begins each file's name.
    """

    def __init__(self, folder: str | None, task: str) -> None:
        self.folder = None if folder is None else Path(folder)
        self.task = task

    def save(self, env: int, state: Array, targets: Array, note: dict[str, Any]) -> Path | None:
        """Write one failure and return the file, which never replaces an older one."""
        if self.folder is None:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"task": self.task, "env": env, **note})
        number = 0
        while True:
            path = self.folder / f"{self.task}-{number:05d}.npz"
            try:
                with path.open("xb") as file:
                    np.savez(file, state=state, targets=targets, note=text)
            except FileExistsError:
                number += 1
            else:
                return path
