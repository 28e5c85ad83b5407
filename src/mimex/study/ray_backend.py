"""Runs as tasks of a Ray cluster, whose machines share the study's folder.

A machine that is lost takes its tasks along; Ray starts them again on another one, where `mimex
train` continues from the last checkpoint.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

from mimex.study.backends import PATIENCE
from mimex.study.process import Job, Process

CONNECT_SECONDS = 10.0
"""How long a cluster's head has to answer."""

ASK_AGAIN = 10.0
"""Seconds after which a task that was told to stop is told again: the interrupt by which Ray tells
it is lost where Python cannot raise it, for example while an object is being removed."""


class RayBackend:
    """Runs on a cluster.

    Args:
        address: Of the cluster; "auto" for the one that this machine belongs to.
        threads: Cores that each run asks the cluster for.
        jobs: Runs to hand over at once; by default as many as the cluster has cores for at the
            moment. More of them wait in Ray, where an autoscaler sees them.
    """

    def __init__(self, address: str, threads: int, jobs: int | None = None) -> None:
        try:
            self._ray: Any = import_module("ray")
        except ImportError as error:
            raise ImportError(
                f"--backend ray needs Ray, which is not installed ({error}): "
                "pip install 'mimex[ray]'"
            ) from error
        try:
            _require_answer(address)
            self._ray.init(address=address, log_to_driver=False, logging_level="warning")
        except (OSError, ValueError) as error:
            raise ConnectionError(
                f"--address is {address!r}, but no Ray cluster answers there ({error}): `ray start "
                "--head` starts one"
            ) from error
        # A lost machine is no fault of the run: it is started again as often as it takes.
        self._work = self._ray.remote(num_cpus=threads, max_retries=-1)(work)
        self._threads, self._jobs = threads, jobs
        self._running: dict[Any, Job] = {}

    @property
    def slots(self) -> int:
        """What the settings say, or what the cluster's cores allow at the moment."""
        if self._jobs is not None:
            return self._jobs
        return max(1, int(self._ray.cluster_resources().get("CPU", 0)) // self._threads)

    def start(self, job: Job) -> None:
        self._running[self._work.options(name=job.name).remote(job)] = job

    def ended(self) -> dict[str, int]:
        waiting = list(self._running)
        ready, _ = (
            self._ray.wait(waiting, num_returns=len(waiting), timeout=0) if waiting else ([], [])
        )
        codes = {}
        for task in ready:
            job = self._running.pop(task)
            try:
                codes[job.name] = int(self._ray.get(task))
            except self._ray.exceptions.RayError as error:
                job.log.parent.mkdir(parents=True, exist_ok=True)
                with job.log.open("a") as log:
                    log.write(f"{error}\n")
                codes[job.name] = 1
        return codes

    def stop(self) -> None:
        waiting = list(self._running)
        deadline = time.monotonic() + PATIENCE
        while waiting and time.monotonic() < deadline:
            for task in waiting:
                self._ray.cancel(task)
            _, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=ASK_AGAIN)
        self._running.clear()

    def close(self) -> None:
        """Leaves the cluster, which ends what still runs there for us."""
        self._ray.shutdown()


def _require_answer(address: str) -> None:
    """Raises an OSError if nobody listens at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def work(job: Job) -> int:
    """Makes a run on the machine where Ray calls this; returns its exit code."""
    process = Process(job)
    try:
        while (code := process.poll()) is None:
            time.sleep(0.2)
    except KeyboardInterrupt:  # how Ray cancels a task
        process.stop()
        while True:
            with suppress(KeyboardInterrupt):  # it may be told again while it saves
                process.wait(PATIENCE)
                break
        raise
    return code
