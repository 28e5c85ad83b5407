"""The processes of one run: who starts them, how they find each other, and how they end.

torchrun starts them all and gives each its place. Otherwise the first one, which a person started,
starts the others with their place in a variable of the environment. Each of them listens to a pipe
from it: when it ends, however it ends, so do they. When one of them ends, the first one raises
``LostProcessError`` within a moment.
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
from mimex.nn.processes import LostProcessError, Place

STARTED = "MIMEX_PROCESS"
"""The variable with the place of a process that the first one has started, and the port to meet."""

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
"""What another process than the first runs; it listens before it imports, which takes seconds."""

A_CORE = 4
"""Processes that are started for each core, at most: more would only wait for each other."""

HERE = "127.0.0.1"
GRACE = 10.0  # seconds in which the others may end by themselves


def place_of_this() -> Place | None:
    """The place that was given to this process; None if it is one that a person started."""
    if STARTED in os.environ:
        told = json.loads(os.environ[STARTED])
        return Place(**{name: int(told[name]) for name in asdict(Place())})
    return processes.place_by_environment()


def with_place(config: TrainConfig) -> tuple[TrainConfig, Place]:
    """The settings, and the place of the first process of such a run."""
    given = processes.place_by_environment()
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
    return config, Place(0, config.processes, 0, config.processes)


def choose_device(config: TrainConfig, place: Place) -> None:
    """Gives every process of this machine a GPU of its own, where the settings ask for one."""
    if place.size == 1 or config.device_name == "cpu":
        return
    if config.device_name != "cuda" or torch.cuda.device_count() < place.local_size:
        raise ValueError(
            f"--processes is {place.local_size} here, but --device {config.device} has only "
            f"{max(torch.cuda.device_count(), 1)}: use one process for each, or --device cpu"
        )
    torch.cuda.set_device(place.local_rank)


@contextmanager
def beside(place: Place) -> Iterator[None]:
    """In this block the first process has met all others; it has started them where nobody has."""
    if place.size == 1 or processes.place_by_environment() is not None:
        if place.size > 1:
            processes.meet()
        yield
        return
    listener = socket.create_server((HERE, 0))
    port = listener.getsockname()[1]
    others = [_start(replace(place, rank=r, local_rank=r), port) for r in range(1, place.size)]
    try:
        with _resuming(others):
            _meet(place, listener, others)
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


def meet_first() -> None:
    """In any other process: meets the first one."""
    if STARTED not in os.environ:
        processes.meet()
        return
    # Ctrl-C was held back until this process could take note of it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    told = json.loads(os.environ[STARTED])
    processes.meet(TCPStore(HERE, told["port"], told["size"], is_master=False))


def _start(place: Place, port: int) -> subprocess.Popen[bytes]:
    told = json.dumps(asdict(place) | {"port": port})
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-c", OTHER],
            stdin=subprocess.PIPE,
            env={**os.environ, STARTED: told},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _meet(place: Place, listener: socket.socket, others: Sequence[subprocess.Popen[bytes]]) -> None:
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
    processes.meet(TCPStore(HERE, port, place.size, is_master=True, **options))
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
