"""Counts of visited cells: the ceiling for bonuses where the right numbers are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mimex.bonus.inputs import check_fraction, check_widths, read_features
from mimex.data.checks import read_state
from mimex.nn import processes
from mimex.types import Metrics, Window


class Count:
    """Pays ``1 / sqrt(n + 1)`` for a step whose cell was visited n times (Strehl & Littman, 2008).

    A cell is a cube of the chosen numbers, or a code of discrete values. Given the coordinates that
    matter to a task it is a cheat, and tells how well exploration could do; given all numbers of a
    robot, every step is in a cell of its own.

    Args:
        feature_dim: Numbers a step; taken from the first window when left out.
        length: Steps a window; only the newest is looked at.
        numbers: Which of the numbers make a cell, by their places; none for all.
        cell: Edge of a cell, in the units of the numbers as the bonus sees them.
        device: Where scores are wanted; counting is done on the CPU.
        seed: Of nothing: it draws nothing unless only a share of the windows is counted.
    """

    no_settings = ("length", "device", "seed")

    def __init__(
        self,
        feature_dim: int | None = None,
        length: int = 1,
        *,
        numbers: tuple[int, ...] = (),
        cell: float = 0.5,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        check_widths(feature_dim=feature_dim, length=length)
        if not 0 < cell < float("inf"):
            raise ValueError(f"cell={cell} must be positive and finite.")
        self.feature_dim, self.length, self.cell = feature_dim, length, cell
        self.numbers, self.device = numbers, torch.device(device)
        self.generator = torch.Generator().manual_seed(seed)
        self.visits: dict[bytes, int] = {}

    def _cells(self, window: Window) -> Tensor:
        """The cell of each window's newest step: ``(B, numbers)``, whole."""
        cpu = torch.device("cpu")
        newest = read_features(window, self.length, self.feature_dim, None, cpu)[:, -1]
        width = newest.shape[1]
        if self.numbers and not all(0 <= place < width for place in self.numbers):
            raise ValueError(f"numbers={self.numbers}: steps have the numbers 0 to {width - 1}.")
        self.feature_dim = width
        chosen = newest[:, list(self.numbers)] if self.numbers else newest
        return (chosen / self.cell).floor().clamp(-(2.0**30), 2.0**30).int()

    def _scores(self, cells: Tensor) -> Tensor:
        visits = torch.tensor([self.visits.get(key, 0) for key in _keys(cells)])
        return (visits + 1).float().rsqrt().to(self.device)

    def reward(self, window: Window) -> Tensor:
        """Scores each window ``(B,)``."""
        return self._scores(self._cells(window))

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """Scores each window as before, then counts them (or a share of them)."""
        check_fraction(train_fraction)
        cells = self._cells(window)
        paid = self._scores(cells)
        if train_fraction < 1:
            order = torch.randperm(len(cells), generator=self.generator)
            cells = cells[order[: max(1, round(train_fraction * len(cells)))]]
        for key in _keys(processes.all_gather(cells)):
            self.visits[key] = self.visits.get(key, 0) + 1
        mean = float(processes.mean(paid.mean()))
        return paid, {"bonus/mean": mean, "bonus/cells": float(len(self.visits))}

    def state_dict(self) -> dict[str, Any]:
        """Cells and their visits, and what makes a cell."""
        width = len(self.numbers) or self.feature_dim or 0
        cells = np.frombuffer(b"".join(self.visits), np.int32).reshape(len(self.visits), width)
        return {
            "kind": type(self).__name__,
            "cell": self.cell,
            "numbers": list(self.numbers),
            "feature_dim": self.feature_dim or 0,
            "cells": torch.from_numpy(cells.copy()),
            "visits": torch.tensor(list(self.visits.values()), dtype=torch.int64),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that ``state_dict`` gave; on a misfit changes nothing."""
        ours = self.state_dict()
        for name in ("kind", "cell", "numbers"):
            found = state.get(name)
            if type(found) is not type(ours[name]) or found != ours[name]:
                raise ValueError(f"the state's {name} is {found!r}, but here it is {ours[name]!r}.")
        width = state.get("feature_dim")
        if type(width) is not int or width < 0 or (self.feature_dim or width) != width:
            raise ValueError(
                f"the state's feature_dim is {width!r}; here it is {self.feature_dim}."
            )
        visits = read_state("visits", state.get("visits"), (), None)
        shape = (len(visits), len(self.numbers) or width)
        cells = read_state("cells", state.get("cells"), shape, torch.int)
        visits = read_state("visits", visits, (len(cells),), torch.int64)
        generator = read_state(
            "generator", state.get("generator"), ours["generator"].shape, torch.uint8
        )
        self.generator.set_state(generator)
        self.feature_dim = width or None
        self.visits = dict(zip(_keys(cells), visits.tolist(), strict=True))


def _keys(cells: Tensor) -> list[bytes]:
    """Cells ``(n, numbers)`` as what a dict finds them by."""
    return [row.tobytes() for row in cells.cpu().numpy()]
