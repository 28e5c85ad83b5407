"""Errors of agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class DebugData(Protocol):
    """Training data that can be saved for debugging."""

    def arrays(self) -> Mapping[str, Any]:
        """The arrays by name."""


class NotFiniteError(ArithmeticError):
    """A loss is NaN or infinite; the network's weights are unchanged.

    Attributes:
        batch: The training data.
    """

    def __init__(self, message: str, batch: DebugData) -> None:
        super().__init__(message)
        self.batch = batch
