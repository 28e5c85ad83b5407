"""What an agent says when its numbers fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Shown(Protocol):
    """What can be looked at."""

    def arrays(self) -> Mapping[str, Any]:
        """Its parts by name."""


class NotFiniteError(ArithmeticError):
    """A loss became NaN or infinite; the weights of that network are those before the step.

    Attributes:
        batch: What it happened on, as the agent has it.
    """

    def __init__(self, message: str, batch: Shown) -> None:
        super().__init__(message)
        self.batch = batch
