"""Visit counts of grid cells: an upper bound for bonuses where the relevant features are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mimex.bonus.inputs import check_fraction, read_features
from mimex.data.checks import read_state, require_positive
from mimex.nn import processes
from mimex.nn.state import load_generator
from mimex.types import Metrics, Window


class Count:
    """Rewards ``1 / sqrt(n + 1)`` in a cell visited n times before (Strehl & Littman, 2008).

    A cell is a cube in the chosen features. With the coordinates that matter to a task this is an
    oracle (privileged) baseline; with all features of a robot nearly every step is in a new cell.

    Args:
        feature_dim: Features per step; inferred from the first window if None.
        length: Window length; only the newest step is used.
        features: Indices of the features that define a cell; empty for all.
        cell: Edge length of a cell, in units of the features.
        device: PyTorch device of the rewards; counts are on the CPU.
        seed: Random seed for ``train_fraction`` below 1.
    """

    no_settings = ("length", "device", "seed")

    def __init__(
        self,
        feature_dim: int | None = None,
        length: int = 1,
        *,
        features: tuple[int, ...] = (),
        cell: float = 0.5,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        require_positive(feature_dim=feature_dim, length=length)
        if not 0 < cell < float("inf"):
            raise ValueError(f"cell={cell} must be positive and finite.")
        self.feature_dim, self.length, self.cell = feature_dim, length, cell
        self.features, self.device = features, torch.device(device)
        self.generator = torch.Generator().manual_seed(seed)
        self.visits: dict[bytes, int] = {}

    def _cells(self, window: Window) -> Tensor:
        """The cell of each window's newest step: ``(B, features)`` integers."""
        cpu = torch.device("cpu")
        newest = read_features(window, self.length, self.feature_dim, None, cpu)[:, -1]
        width = newest.shape[1]
        if not all(0 <= index < width for index in self.features):
            raise ValueError(f"features={self.features} must be indices from 0 to {width - 1}.")
        self.feature_dim = width
        chosen = newest[:, list(self.features)] if self.features else newest
        return (chosen / self.cell).floor().clamp(-(2.0**30), 2.0**30).int()

    def _scores(self, cells: Tensor) -> Tensor:
        visits = torch.tensor([self.visits.get(key, 0) for key in _keys(cells)])
        return (visits + 1).float().rsqrt().to(self.device)

    def reward(self, window: Window) -> Tensor:
        """Scores each window ``(B,)``."""
        return self._scores(self._cells(window))

    def learn(self, window: Window, train_fraction: float = 1.0) -> tuple[Tensor, Metrics]:
        """Scores each window, then counts all of them, or a random fraction."""
        check_fraction(train_fraction)
        cells = self._cells(window)
        rewards = self._scores(cells)
        if train_fraction < 1:
            order = torch.randperm(len(cells), generator=self.generator)
            cells = cells[order[: max(1, round(train_fraction * len(cells)))]]
        for key in _keys(processes.all_gather(cells)):
            self.visits[key] = self.visits.get(key, 0) + 1
        mean = float(processes.mean(rewards.mean()))
        return rewards, {"bonus/mean": mean, "bonus/cells": float(len(self.visits))}

    def state_dict(self) -> dict[str, Any]:
        """Cells and their visits, and the definition of a cell."""
        width = len(self.features) or self.feature_dim or 0
        cells = np.frombuffer(b"".join(self.visits), np.int32).reshape(len(self.visits), width)
        return {
            "kind": type(self).__name__,
            "cell": self.cell,
            "features": list(self.features),
            "feature_dim": self.feature_dim or 0,
            "cells": torch.from_numpy(cells.copy()),
            "visits": torch.tensor(list(self.visits.values()), dtype=torch.int64),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``; if it does not fit, ValueError, and nothing changes."""
        ours = self.state_dict()
        for name in ("kind", "cell", "features"):
            found = state.get(name)
            if type(found) is not type(ours[name]) or found != ours[name]:
                raise ValueError(f"the state's {name} is {found!r}, but here it is {ours[name]!r}.")
        width = state.get("feature_dim")
        if type(width) is not int or width < 0 or (self.feature_dim or width) != width:
            raise ValueError(
                f"the state's feature_dim is {width!r}; here it is {self.feature_dim}."
            )
        count = len(read_state("visits", state.get("visits"), (), None))
        shapes = {"visits": (count,), "cells": (count, len(self.features) or width)}
        visits, cells = (
            read_state(name, state.get(name), shape, ours[name].dtype)
            for name, shape in shapes.items()
        )
        load_generator(self.generator, state.get("generator"))
        self.feature_dim = width or None
        self.visits = dict(zip(_keys(cells), visits.tolist(), strict=True))


def _keys(cells: Tensor) -> list[bytes]:
    """Dictionary keys of cells ``(n, features)``."""
    return [row.tobytes() for row in cells.cpu().numpy()]
