"""Stop requests by signals."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from dataclasses import dataclass
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

    @property
    def agreed(self) -> AgreedStop:
        """The request of any process of the run; evaluating it is a collective operation."""
        return AgreedStop(self)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Schedulers may send SIGTERM twice, to a process and to its group.
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)


@dataclass(frozen=True)
class AgreedStop:
    """True once any process of the run was asked to stop.

    Attributes:
        own: The request of this process, which is set to that of another one.
    """

    own: StopRequest

    def __bool__(self) -> bool:
        number = max(processes.all_gather_object(self.own.signal or 0))
        if number:
            self.own.signal = signal.Signals(number)
        return bool(number)
