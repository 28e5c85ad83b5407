"""Runs as tasks of a Ray cluster whose machines share the study's folder.

If a machine is lost, Ray restarts its tasks on another one, where `mimex train` resumes from the
last checkpoint.
"""

from __future__ import annotations

import signal
import socket
import time
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from mimex.extras import optional_import
from mimex.files import append_to
from mimex.study.backends import PATIENCE, Job, Process, stop_all

CONNECT_SECONDS = 10.0
"""Time limit for a connection to the cluster."""


class RayBackend:
    """Executes runs on a cluster.

    Args:
        address: Address of the cluster; "auto" for the one that this machine belongs to.
        threads: CPUs per run.
        gpus: GPUs per run, or a fraction of one.
        jobs: Runs to submit at once; by default as many as the cluster has CPUs for. With more,
            an autoscaler sees the demand.
    """

    def __init__(
        self, address: str, threads: int, *, gpus: float = 0.0, jobs: int | None = None
    ) -> None:
        with optional_import("--backend ray"):
            self._ray: Any = import_module("ray")
        try:
            _require_answer(address)
            self._ray.init(address=address, log_to_driver=False, logging_level="warning")
        except (OSError, ValueError) as error:
            raise ConnectionError(
                f"--address is {address!r}, but no Ray cluster answers there ({error}): `ray start "
                "--head` starts one"
            ) from error
        # Losing a machine is not a failure of the run: retry without limit.
        self._work = self._ray.remote(max_retries=-1)(work)
        self._threads, self._gpus, self._jobs = threads, gpus, jobs
        self._running: dict[Any, Job] = {}
        self._stop_name = f".stop-{uuid4().hex}"
        self._stops: set[Path] = set()  # files that were written

    @property
    def slots(self) -> int:
        if self._jobs is not None:
            return self._jobs
        return max(1, int(self._ray.cluster_resources().get("CPU", 0)) // self._threads)

    def start(self, job: Job) -> None:
        task = self._work.options(name=job.name, num_cpus=job.threads, num_gpus=self._gpus)
        self._running[task.remote(job, self._stop_name)] = job

    def ended(self) -> dict[str, int]:
        waiting = list(self._running)
        codes = {}
        for task in waiting and self._ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]:
            job = self._running.pop(task)
            try:
                codes[job.name] = int(self._ray.get(task))
            except self._ray.exceptions.RayError as error:
                with append_to(job.log) as log:
                    log.write(f"{error}\n".encode())
                codes[job.name] = 1
        return codes

    def stop(self) -> None:
        # By a file, because the interrupt of ray.cancel is sometimes lost.
        self._stops |= {job.log.with_name(self._stop_name) for job in self._running.values()}
        for path in self._stops:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        waiting = list(self._running)
        if waiting:
            self._ray.wait(waiting, num_returns=len(waiting), timeout=PATIENCE)
        self._running.clear()

    def close(self) -> None:
        """Disconnects from the cluster, which ends our remaining tasks."""
        self._ray.shutdown()
        for path in self._stops:
            path.unlink(missing_ok=True)


def _require_answer(address: str) -> None:
    """Raises an OSError if nothing listens at HOST:PORT; Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def work(job: Job, stop_name: str) -> int:
    """Executes a run on a machine of the cluster; returns its exit code.

    Once a file of the given name exists next to the run's log, the run saves a checkpoint and ends.
    """
    process, stop = Process(job), job.log.with_name(stop_name)
    while not stop.exists():
        if (code := process.poll()) is not None:
            return code
        time.sleep(0.2)
    stop_all([process])
    return 128 + signal.SIGTERM
