"""Time measurement for ``time/`` metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from mimex.types import Metrics


class Clock:
    """Sums the wall time (s) of named parts of the training loop."""

    def __init__(self) -> None:
        self._parts: dict[str, float] = {}
        self._start = time.perf_counter()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Adds the time of the block to a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._parts[part] = self._parts.get(part, 0.0) + time.perf_counter() - start

    def read(self, steps: int) -> Metrics:
        """Seconds per part and environment steps per second since the last reading."""
        now = time.perf_counter()
        metrics = {f"time/{part}": seconds for part, seconds in self._parts.items()}
        metrics["time/steps_per_second"] = steps / (now - self._start)
        self._parts.clear()
        self._start = now
        return metrics
