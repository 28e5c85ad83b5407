"""Stopping a run by a signal."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Self

from mimex.nn import processes


class StopRequest(ExitStack):
    """Records Ctrl-C and SIGTERM, for a loop to check.

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

    @property
    def agreed(self) -> AgreedStop:
        """True once any process of the run was asked to stop; all processes must evaluate it."""
        return AgreedStop(self)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Schedulers may send SIGTERM twice, to a process and to its group: that is no hurry.
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)


@dataclass(frozen=True)
class AgreedStop:
    """Whether any process was asked to stop; a collective operation.

    Attributes:
        own: The request of this process; later also that of another one.
    """

    own: StopRequest

    def __bool__(self) -> bool:
        number = max(processes.all_gather_object(self.own.signal or 0))
        if number:
            self.own.signal = signal.Signals(number)
        return bool(number)
