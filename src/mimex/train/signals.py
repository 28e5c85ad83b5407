"""Stopping a run from outside, without losing anything."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from types import FrameType
from typing import Self


class StopRequest(ExitStack):
    """Turns Ctrl-C and SIGTERM into a question that a loop asks when it suits.

    A second Ctrl-C interrupts at once. Only the main thread of a process may enter it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.signal: signal.Signals | None = None

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.callback(signal.signal, number, signal.signal(number, self._note))
        return self

    def __bool__(self) -> bool:
        return self.signal is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Schedulers may send SIGTERM twice, to a process and to its group: that is no hurry.
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
