"""Where runs are made, and the simplest place: processes of this machine.

A run's process ends with whoever started it, and is never doubled.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mimex.files import append_to
from mimex.train.folder import FolderInUseError, RunFolder

PATIENCE = 120.0
"""Seconds that a run has to save itself when a study is stopped, before it is killed."""

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Job:
    """A run to start, on this machine or on another one that sees the same folders."""

    name: str
    arguments: tuple[str, ...]  # of `mimex train`, without --out and --threads
    folder: Path
    log: Path
    threads: int
    gpus: float = 0.0  # that it asks a cluster for

    @property
    def command(self) -> tuple[str, ...]:
        """What follows `mimex`."""
        where = ("--out", str(self.folder), "--threads", str(self.threads))
        return ("train", *self.arguments, *where)


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
        self._processes.clear()

    def close(self) -> None:
        self.stop()


class Process:
    """A job's process, started as soon as nobody else writes to its folder.

    Somebody else may be what is left of a study that was killed: it is waited for.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._process: subprocess.Popen[bytes] | None = None

    def poll(self) -> int | None:
        """The exit code, or None before the end. Has to be asked for the process to start."""
        if self._process is None:
            if not _in_use(self.job.folder):
                self._process = _start(self.job)
            return None
        return self._process.poll()

    def stop(self) -> None:
        """Lets the run save and end."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """Ends the run at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self, seconds: float) -> None:
        """Waits for the end of what was started, so long at most."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)


def _start(job: Job) -> subprocess.Popen[bytes]:
    threads = {f"{library}_NUM_THREADS": str(job.threads) for library in ("OMP", "MKL", "OPENBLAS")}
    starter = os.getpid()

    def end_with_the_starter() -> None:
        # In the new process, before the program: a starter that is killed takes it along, and
        # SIGTERM lets it save. Other systems than Linux have no such order; there it runs on, and
        # a study that is started again waits for it.
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != starter:  # it was killed in between
                os._exit(128 + signal.SIGTERM)

    with append_to(job.log) as log:
        log.write(f"$ mimex {shlex.join(job.command)}\n".encode())
        return subprocess.Popen(
            [sys.executable, "-m", "mimex.cli", *job.command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | threads,
            start_new_session=True,  # Ctrl-C is for the study, which passes it on once
            preexec_fn=end_with_the_starter,
        )


def _in_use(folder: Path) -> bool:
    if not folder.exists():
        return False
    try:
        with RunFolder(folder):
            return False
    except FolderInUseError:
        return True
