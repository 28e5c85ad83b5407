"""Backends that execute runs, and the local one, which uses processes of this machine.

A run's process ends with the process that started it, and no run is started twice.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mimex.files import append_to
from mimex.train.folder import FolderInUseError, RunFolder

PATIENCE = 120.0
"""Seconds for a run to save a checkpoint when a study is stopped, before it is killed."""

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Job:
    """A run to start, on this machine or on one that shares its folders."""

    name: str
    arguments: tuple[str, ...]  # of `mimex train`, without --out and --threads
    folder: Path
    log: Path
    threads: int

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments of `mimex`."""
        where = ("--out", str(self.folder), "--threads", str(self.threads))
        return ("train", *self.arguments, *where)


class Backend(Protocol):
    """Executes runs."""

    @property
    def slots(self) -> int:
        """Number of parallel runs."""

    def start(self, job: Job) -> None:
        """Starts a run."""

    def ended(self) -> dict[str, int]:
        """Returns exit codes of the runs that ended since the last call, by name."""

    def stop(self) -> None:
        """Asks all runs to save a checkpoint and end, and waits for them."""

    def close(self) -> None:
        """Ends all runs and releases resources."""


class LocalBackend:
    """Executes runs as processes of this machine, ``slots`` of them in parallel."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._processes: dict[str, Process] = {}

    def start(self, job: Job) -> None:
        self._processes[job.name] = Process(job)

    def ended(self) -> dict[str, int]:
        codes = {name: process.poll() for name, process in self._processes.items()}
        ended = {name: code for name, code in codes.items() if code is not None}
        for name in ended:
            del self._processes[name]
        return ended

    def stop(self) -> None:
        stop_all(list(self._processes.values()))
        self._processes.clear()

    close = stop


class Process:
    """A job's process, started as soon as no other process holds the lock of its folder.

    Another process may be left from a study that was killed.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.started: subprocess.Popen[bytes] | None = None

    def poll(self) -> int | None:
        """Starts the process if possible; returns its exit code, or None before the end."""
        if self.started is not None:
            return self.started.poll()
        if not _in_use(self.job.folder):
            self.started = _start(self.job)
        return None


def stop_all(processes: Sequence[Process]) -> None:
    """Asks runs to save a checkpoint and end; kills those that take longer than ``PATIENCE``."""
    started = [process.started for process in processes if process.started is not None]
    try:
        for each in started:
            each.terminate()
        until = time.monotonic() + PATIENCE
        for each in started:
            with suppress(subprocess.TimeoutExpired):
                each.wait(max(0.0, until - time.monotonic()))
    finally:  # also on a second Ctrl-C
        for each in started:
            each.kill()
            each.wait()


def _start(job: Job) -> subprocess.Popen[bytes]:
    threads = {f"{library}_NUM_THREADS": str(job.threads) for library in ("OMP", "MKL", "OPENBLAS")}
    parent = os.getpid()

    def end_with_parent() -> None:
        # Runs in the child before exec: it gets SIGTERM when its parent is killed, and saves a
        # checkpoint. Only Linux has this. Elsewhere the child continues, and a restarted study
        # waits for it.
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # it was killed in between
                os._exit(128 + signal.SIGTERM)

    with append_to(job.log) as log:
        log.write(f"$ mimex {shlex.join(job.command)}\n".encode())
        return subprocess.Popen(
            [sys.executable, "-m", "mimex.cli", *job.command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | threads,
            start_new_session=True,  # Ctrl-C goes to the study, which stops its runs
            preexec_fn=end_with_parent,
        )


def _in_use(folder: Path) -> bool:
    if not folder.exists():
        return False
    try:
        with RunFolder(folder):
            return False
    except FolderInUseError:
        return True
