"""Task families: PixMC-Sparse, the DeepMind Control suite, Gymnasium.

To add a family, add a file with a ``Family`` and a line in ``FILES``.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from mimex.config.families.base import Family

FILES = {
    "dmc": "DMC",
    "gym": "GYM",
    "pixmc": "PIXMC",
}
"""File and object of every family; the tasks of the last one have no prefix."""

FAMILIES: tuple[Family, ...] = tuple(
    getattr(import_module(f"{__name__}.{file}"), name) for file, name in FILES.items()
)


def family_of(task: str) -> Family:
    """Returns the family of a task, by the prefix of its name."""
    return next(family for family in FAMILIES if task.startswith(family.prefix))


def require_task(task: str) -> None:
    """Raises an error with a suggestion if a task does not exist."""
    family = family_of(task)
    if family.has(task):
        return
    known = {name.lower(): name for each in FAMILIES for name in each.tasks()}
    # Also names without their prefix: cartpole_swingup, CartPole-v1.
    known |= {lower.split("/", 1)[-1]: name for lower, name in known.items()}
    close = get_close_matches(task.lower(), known, n=1, cutoff=0.5)
    hint = f"; did you mean {known[close[0]]!r}?" if close else ""
    named = ", ".join(name for each in FAMILIES[::-1] for name in each.named)
    raise ValueError(f"task is {task!r}, but must be one of {named}{hint}")
