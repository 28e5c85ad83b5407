"""One place to report metrics to, and the interface of whatever keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, SupportsFloat

from mimex.types import Metrics


class Sink(Protocol):
    """Keeps rows of metrics somewhere."""

    def write(self, step: int, metrics: Metrics) -> None:
        """Keeps the metrics of a step."""

    def close(self) -> None:
        """Finishes; nothing is written afterwards."""


class Logger:
    """Gives every row of metrics to every sink.

    Args:
        sinks: Where rows go. They are closed at the end of a ``with`` block.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = tuple(sinks)

    def log(self, step: int, metrics: Mapping[str, SupportsFloat]) -> None:
        """Reports metrics by name, such as ``train/success``; numbers of any library will do."""
        if "step" in metrics:
            raise ValueError("metrics has the name 'step', which is the row's own: leave it out.")
        row = {name: float(value) for name, value in metrics.items()}
        for sink in self.sinks:
            sink.write(step, row)

    def close(self) -> None:
        """Closes all sinks."""
        for sink in self.sinks:
            sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
