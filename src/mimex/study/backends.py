"""Where runs are made, and the simplest place: processes of this machine."""

from __future__ import annotations

import time
from typing import Protocol

from mimex.study.process import Job, Process

PATIENCE = 120.0
"""Seconds that a run has to save itself when a study is stopped, before it is killed."""


class Backend(Protocol):
    """Makes runs somewhere."""

    @property
    def slots(self) -> int:
        """How many runs to hand over at once."""

    def start(self, job: Job) -> None:
        """Takes over a run."""

    def ended(self) -> dict[str, int]:
        """Exit codes of the runs that ended since the last call, by name."""

    def stop(self) -> None:
        """Lets all runs save and end, and waits for it."""

    def close(self) -> None:
        """Ends what still runs, and lets go of what it ran on."""


class LocalBackend:
    """Runs as processes of this machine.

    Args:
        jobs: How many side by side.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._processes: dict[str, Process] = {}

    @property
    def slots(self) -> int:
        return self._jobs

    def start(self, job: Job) -> None:
        self._processes[job.name] = Process(job)

    def ended(self) -> dict[str, int]:
        codes = {name: process.poll() for name, process in self._processes.items()}
        ended = {name: code for name, code in codes.items() if code is not None}
        for name in ended:
            del self._processes[name]
        return ended

    def stop(self) -> None:
        processes = list(self._processes.values())
        for process in processes:
            process.stop()
        try:
            until = time.monotonic() + PATIENCE
            for process in processes:
                process.wait(max(0.0, until - time.monotonic()))
        finally:  # also on a second Ctrl-C
            for process in processes:
                process.kill()
                process.wait()
        self._processes.clear()

    def close(self) -> None:
        self.stop()
