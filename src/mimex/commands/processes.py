"""Starting, connecting and ending the processes of one run.

With torchrun, each process has its rank in torchrun's variables. Otherwise the first process spawns
the others, with their rank in an environment variable. Each of them reads from a pipe and exits
when the first process ends. When one of them ends, the first raises ``LostProcessError``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any, NoReturn

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from mimex.config import TrainConfig
from mimex.nn import processes
from mimex.nn.parallel import available_cores
from mimex.nn.processes import LostProcessError, Rank

STARTED = "MIMEX_PROCESS"
"""Environment variable with the rank of a spawned process, and the port to connect to."""

LOST = 3
"""Exit code of a process that ended because another one had."""

OTHER = f"""
import os, threading
def end_with_the_first():
    os.read(0, 1)  # nothing ever comes but the end
    os._exit({LOST})
threading.Thread(target=end_with_the_first, daemon=True).start()
from mimex.cli import main
raise SystemExit(main(["train"]))
"""
"""Code of a spawned process; it watches the pipe before the slow imports."""

A_CORE = 4
"""Maximum number of processes per core."""

HERE = "127.0.0.1"
GRACE = 10.0  # seconds in which the others may end by themselves


def rank_of_this() -> Rank | None:
    """The rank of a process that torchrun or another process started; None otherwise."""
    if STARTED in os.environ:
        told = json.loads(os.environ[STARTED])
        return Rank(**{name: int(told[name]) for name in asdict(Rank())})
    return processes.rank_from_environment()


def with_rank(config: TrainConfig) -> tuple[TrainConfig, Rank]:
    """The settings, and the rank of the first process."""
    given = processes.rank_from_environment()
    if given is not None:
        if config.processes not in (1, given.size):
            raise ValueError(
                f"--processes is {config.processes}, but torchrun has started {given.size}: leave "
                "--processes out"
            )
        return replace(config, processes=given.size).checked(), given
    most = A_CORE * available_cores()
    if config.processes > most:
        raise ValueError(
            f"--processes is {config.processes}, but this machine has {available_cores()} cores: "
            f"use at most {most}"
        )
    return config, Rank(0, config.processes, 0, config.processes)


def choose_device(config: TrainConfig, this: Rank) -> None:
    """Assigns a GPU to each process of this machine, if the settings ask for it."""
    if this.size == 1 or config.device_name == "cpu":
        return
    if config.device_name != "cuda" or torch.cuda.device_count() < this.local_size:
        raise ValueError(
            f"--processes is {this.local_size} here, but --device {config.device} has only "
            f"{max(torch.cuda.device_count(), 1)}: use one process for each, or --device cpu"
        )
    torch.cuda.set_device(this.local_rank)


@contextmanager
def spawn(this: Rank) -> Iterator[None]:
    """Spawns the other processes, unless torchrun has, and connects to them."""
    if this.size == 1 or processes.rank_from_environment() is not None:
        if this.size > 1:
            processes.init()
        yield
        return
    listener = socket.create_server((HERE, 0))
    port = listener.getsockname()[1]
    others = [_start(replace(this, rank=r, local_rank=r), port) for r in range(1, this.size)]
    try:
        with _resuming(others):
            _connect(this, listener, others)
            heard = signal.signal(signal.SIGCHLD, lambda *_: _raise_if_lost(others))
            try:
                yield
            finally:
                signal.signal(signal.SIGCHLD, heard)
    except LostProcessError as error:
        raise LostProcessError(_who(others, GRACE) or str(error)) from None
    else:
        _wait(others, GRACE)
    finally:
        for other in others:
            assert other.stdin is not None
            other.stdin.close()
        _wait(others, GRACE)
        for other in others:
            other.kill()
            other.wait()


@contextmanager
def _resuming(others: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """In this block a signal that is to end the run also lets suspended processes go on.

    The first process waits for them outside of Python, where its own handlers do not run: so a
    thread hears of signals through a socket.
    """
    hear, tell = socket.socketpair()
    tell.setblocking(False)

    def listen() -> None:
        while told := hear.recv(64):
            if {signal.SIGINT, signal.SIGTERM} & {*told}:
                for other in others:
                    other.send_signal(signal.SIGCONT)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        tell.close()
        listener.join()
        hear.close()


def leave(code: int) -> NoReturn:
    """Ends a process that has done its part of a run, at once.

    A thread of a library that is still there when Python takes itself apart aborts the process
    now and then ("terminate called without an active exception"), and torchrun would take a run
    that is done and saved for a failed one.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # closed, or never there
            stream.flush()
    os._exit(code)


def init_other() -> None:
    """Connects another process to the first one."""
    if STARTED not in os.environ:
        processes.init()
        return
    # Ctrl-C was held back until this process could take note of it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    told = json.loads(os.environ[STARTED])
    processes.init(TCPStore(HERE, told["port"], told["size"], is_master=False))


def _start(this: Rank, port: int) -> subprocess.Popen[bytes]:
    told = json.dumps(asdict(this) | {"port": port})
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-c", OTHER],
            stdin=subprocess.PIPE,
            env={**os.environ, STARTED: told},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _connect(
    this: Rank, listener: socket.socket, others: Sequence[subprocess.Popen[bytes]]
) -> None:
    """Waits for the others. One that ends meanwhile would never come: then all is over at once."""
    met = threading.Event()

    def watch() -> None:
        while not met.wait(0.1):
            if words := _who(others):
                print(f"mimex: {words}", file=sys.stderr, flush=True)
                os._exit(1)  # this process waits outside of Python, where it hears nothing

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    port = listener.getsockname()[1]
    options: dict[str, Any] = {"master_listen_fd": listener.detach(), "wait_for_workers": False}
    processes.init(TCPStore(HERE, port, this.size, is_master=True, **options))
    met.set()
    watcher.join()


def _who(others: Sequence[subprocess.Popen[bytes]], seconds: float = 0.0) -> str | None:
    """Which process has ended by itself and how, if one has within so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        for rank, other in enumerate(others, start=1):
            code = other.poll()
            if code not in (None, 0, LOST):
                how = f"was ended by {signal.Signals(-code).name}" if code < 0 else "has failed"
                return (
                    f"process {rank} of {len(others) + 1} (from 0) {how}, and the run with it: the "
                    "last checkpoint is intact, and the same command continues from it"
                )
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.01)


def _raise_if_lost(others: Sequence[subprocess.Popen[bytes]]) -> None:
    if words := _who(others):
        raise LostProcessError(words)


def _wait(others: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for other in others:
        with suppress(subprocess.TimeoutExpired):
            other.wait(max(0.0, deadline - time.monotonic()))
