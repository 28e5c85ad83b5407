"""What an agent says when its numbers fail."""

from __future__ import annotations


class NotFiniteError(ArithmeticError):
    """A loss became NaN or infinite; the weights of that network are those before the step.

    Attributes:
        batch: What it happened on, as the agent has it.
    """

    def __init__(self, message: str, batch: object) -> None:
        super().__init__(message)
        self.batch = batch
