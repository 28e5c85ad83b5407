"""Starting, connecting and ending the processes of one run.

With torchrun, each process has its rank in torchrun's environment variables. Otherwise the first
process spawns the others, with their rank in an environment variable of ours. They exit when a pipe
from the first process is closed. When one of them exits, the first raises ``LostProcessError``.
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
from mimex.nn.processes import LostProcessError, Rank

STARTED = "MIMEX_PROCESS"
"""Environment variable with the rank of a spawned process, and the port to connect to."""

LOST = 3
"""Exit code of a process that ended because another one had ended."""

SPAWNED_CODE = f"""
import os, threading
def exit_with_first():
    os.read(0, 1)  # blocks until the pipe is closed
    os._exit({LOST})
threading.Thread(target=exit_with_first, daemon=True).start()
from mimex.cli import main
raise SystemExit(main(["train"]))
"""
"""Code of a spawned process; it watches the pipe before the slow imports."""

HOST = "127.0.0.1"
GRACE = 10.0  # seconds for other processes to end before they are killed


def own_rank() -> Rank | None:
    """Returns the rank that torchrun or the first process has set; None without."""
    if STARTED in os.environ:
        sent = json.loads(os.environ[STARTED])
        return Rank(**{name: int(sent[name]) for name in asdict(Rank())})
    return processes.rank_from_environment()


def with_rank(config: TrainConfig) -> tuple[TrainConfig, Rank]:
    """Returns the settings and the rank of the first process."""
    given = processes.rank_from_environment()
    if given is not None:
        if config.processes not in (1, given.size):
            raise ValueError(
                f"--processes is {config.processes}, but torchrun has {given.size}: leave it out"
            )
        return replace(config, processes=given.size).checked(), given
    return config, Rank(0, config.processes, 0, config.processes)


def choose_device(config: TrainConfig, this: Rank) -> None:
    """Assigns a GPU to each process of this machine if --device is cuda."""
    if this.size == 1 or config.device_name == "cpu":
        return
    if config.device_name != "cuda" or torch.cuda.device_count() < this.local_size:
        raise ValueError(
            f"--processes is {this.local_size}, but this machine has {torch.cuda.device_count()} "
            "GPUs: use one process per GPU, or --device cpu"
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
    listener = socket.create_server((HOST, 0))  # a TCPStore of its own would listen everywhere
    port = listener.getsockname()[1]
    options: Any = {"master_listen_fd": listener.detach(), "wait_for_workers": False}
    store = TCPStore(HOST, port, this.size, is_master=True, **options)
    others = [_start(replace(this, rank=r, local_rank=r), port) for r in range(1, this.size)]
    before = signal.getsignal(signal.SIGCHLD)
    try:
        with _resume_on_signals(others):
            # Before connecting, which waits outside of Python, where no signal handler runs.
            while not store.check([STARTED + str(rank) for rank in range(1, this.size)]):
                _raise_if_lost(others)
                time.sleep(0.05)
            signal.signal(signal.SIGCHLD, lambda *_: _raise_if_lost(others))
            processes.init(store)
            yield
    except LostProcessError as error:
        raise LostProcessError(_failure(others, GRACE) or str(error)) from None
    else:
        _wait(others, GRACE)
    finally:
        signal.signal(signal.SIGCHLD, before)
        for other in others:
            assert other.stdin is not None
            other.stdin.close()
        _wait(others, GRACE)
        for other in others:
            other.kill()
            other.wait()


@contextmanager
def _resume_on_signals(others: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """In this block, SIGINT and SIGTERM also resume suspended processes.

    The first process may be waiting for them outside of Python, where signal handlers do not run.
    So a thread receives the signals through a socket.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def listen() -> None:
        while numbers := receiver.recv(64):
            if {signal.SIGINT, signal.SIGTERM} & {*numbers}:
                for other in others:
                    other.send_signal(signal.SIGCONT)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        sender.close()
        listener.join()
        receiver.close()


def exit_now(code: int) -> NoReturn:
    """Exits without Python's shutdown.

    During shutdown, threads of libraries sometimes abort the process ("terminate called without an
    active exception"), and torchrun would report a finished run as failed.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # closed
            stream.flush()
    os._exit(code)


def init_other() -> None:
    """Connects this process to the first one."""
    if STARTED not in os.environ:
        processes.init()
        return
    # Blocked by the first process until this one handles it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sent = json.loads(os.environ[STARTED])
    store = TCPStore(HOST, sent["port"], sent["size"], is_master=False)
    store.set(STARTED + str(sent["rank"]), "")
    processes.init(store)


def _start(this: Rank, port: int) -> subprocess.Popen[bytes]:
    sent = json.dumps(asdict(this) | {"port": port})
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-c", SPAWNED_CODE],
            stdin=subprocess.PIPE,
            env={**os.environ, STARTED: sent},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _failure(others: Sequence[subprocess.Popen[bytes]], seconds: float = 0.0) -> str | None:
    """Describes which process has failed and how, if one does within some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        for rank, other in enumerate(others, start=1):
            code = other.poll()
            if code not in (None, 0, LOST):
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else "has failed"
                return (
                    f"process {rank} of {len(others) + 1} (from 0) {how}, which ended the run: the "
                    "last checkpoint is intact, and the same command resumes from it"
                )
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.01)


def _raise_if_lost(others: Sequence[subprocess.Popen[bytes]]) -> None:
    if reason := _failure(others):
        raise LostProcessError(reason)


def _wait(others: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for other in others:
        with suppress(subprocess.TimeoutExpired):
            other.wait(max(0.0, deadline - time.monotonic()))
