"""Stop requests by signals."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from types import FrameType
from typing import Self

from mimex.nn import processes


class StopRequest(ExitStack):
    """Records SIGINT and SIGTERM, to be polled by a loop.

    A second Ctrl-C raises KeyboardInterrupt. Must be entered in the main thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.signal: signal.Signals | None = None

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.callback(signal.signal, number, signal.signal(number, self._handle))
        return self

    def __bool__(self) -> bool:
        return self.signal is not None

    def in_any_process(self) -> bool:
        """Whether any process of the run was asked to stop; a collective operation."""
        number = max(processes.all_gather_object(self.signal or 0))
        if number:
            self.signal = signal.Signals(number)
        return bool(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Schedulers may send SIGTERM twice, to a process and to its group.
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
