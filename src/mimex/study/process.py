"""One run as a process, which ends with whoever started it and is never doubled."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mimex.files import append_to
from mimex.train.folder import FolderInUseError, RunFolder

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

    @property
    def command(self) -> tuple[str, ...]:
        """What follows `mimex`."""
        where = ("--out", str(self.folder), "--threads", str(self.threads))
        return ("train", *self.arguments, *where)


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

    def wait(self, seconds: float | None = None) -> None:
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
