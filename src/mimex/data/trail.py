"""The one way to build windows: follow the row before each row, and sum the actions on the way.

A window ends at one observation and reaches back over those before it in its episode, ``length``
of them ``stride`` apart, never over the episode's start; what is missing is zeros that are marked
as not valid. Rollouts (``windows.py``), step-by-step loops (``tracker.py``), our replay ring
(``replay.py``) and that of Stable-Baselines3 only say which row is before which.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PADDING = 0
"""The row that stands for what was before an episode's start."""


def trail(
    newest: Tensor, previous: Callable[[Tensor], Tensor], length: int, stride: int = 1
) -> Tensor:
    """Rows of each observation and of those before it in its episode, oldest first.

    Args:
        newest: Rows ``(...)`` at which windows end; PADDING for an empty window.
        previous: The row before each row in its episode; PADDING before the first and before
            PADDING.
        length: Steps a window.
        stride: Observations from one step of a window to the next.

    Returns:
        ``(..., L, S)``: the last of each S is the step itself, those before it were passed on the
        way from the step before.
    """
    rows = [newest]
    for _ in range(length * stride):
        rows.append(previous(rows[-1]))
    return torch.stack(rows[::-1], dim=-1)[..., 1:].reshape(*newest.shape, length, stride)


def sum_between(actions: Tensor, known: Tensor) -> Tensor:
    """The sum of the actions that led from each step of a window to the next.

    Args:
        actions: ``(..., L, S, A)``, or ``(..., L, S)`` codes: that led to each row of a ``trail``.
        known: ``(..., L, S)`` bool: False for those that do not count, as of the padding.
    """
    actions = actions * known.view(*known.shape, *[1] * (actions.ndim - known.ndim))
    newest, *older = actions.unbind(known.ndim - 1)[::-1]
    for action in older:  # one by one: the same bits whatever the layout
        newest = newest + action
    return newest


def replay_rows(
    newest: Tensor, oldest: Tensor, slots: int, length: int, stride: int = 1
) -> tuple[Tensor, Tensor]:
    """Where windows of observations in a replay ring lie: the row before is the slot before.

    Args:
        newest: ``(B,)`` numbers of the observations at which windows end; a number modulo
            ``slots`` is a slot.
        oldest: ``(B,)`` numbers of the first observations of their episodes that the ring still
            has: ``newest - torch.minimum(age, kept)``, of how many there were and are before them.
        slots: Of the ring, more than a window reaches back.
        length: Steps a window.
        stride: Observations from one step of a window to the next.

    Returns:
        Slots ``(B, L, S)`` as of ``trail``, where the oldest stands for what is missing, and which
        are there ``(B, L, S)``.
    """
    first = oldest + slots  # all positive: none is PADDING
    path = trail(
        newest + slots, lambda row: torch.where(row > first, row - 1, PADDING), length, stride
    )
    known = path != PADDING
    return torch.where(known, path, first[:, None, None]) % slots, known
