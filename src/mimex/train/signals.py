"""Stopping a run from outside, without losing anything."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self


class StopRequest:
    """Turns Ctrl-C and SIGTERM into a question that a loop asks when it suits.

    A second Ctrl-C interrupts at once. Only the main thread of a process may enter it.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return self.signal is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Schedulers may send SIGTERM twice, to a process and to its group: that is no hurry.
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
