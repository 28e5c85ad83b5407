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
    """Executes runs as processes of this machine, ``jobs`` of them in parallel."""

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
    """A job's process, started as soon as no other process holds the lock of its folder.

    Another process may be left from a study that was killed.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._process: subprocess.Popen[bytes] | None = None

    def poll(self) -> int | None:
        """Starts the process if possible; returns its exit code, or None before the end."""
        if self._process is None:
            if not _in_use(self.job.folder):
                self._process = _start(self.job)
            return None
        return self._process.poll()

    def stop(self) -> None:
        """Asks the run to save a checkpoint and end."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """Kills the run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self, seconds: float) -> None:
        """Waits for the end of the process, at most for some seconds."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)


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
