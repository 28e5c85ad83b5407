"""Executes the runs of a study, each until it is finished."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mimex.study.backends import Backend
from mimex.study.folder import StudyFolder
from mimex.study.plan import PlannedRun

ATTEMPTS = 2
"""Number of times that a failing run is started."""

POLL_SECONDS = 0.5
"""Time between two checks of the runs."""


@dataclass
class Progress:
    """Names of runs by state."""

    queued: list[str]
    done: list[str]
    running: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # with the reason
    stopped: bool = False


def sweep(
    folder: StudyFolder,
    runs: Sequence[PlannedRun],
    backend: Backend,
    *,
    threads: int,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Executes the runs that are not finished, and resumes those that were interrupted.

    Args:
        folder: The study folder, locked by the caller.
        runs: The runs, in order of execution.
        backend: Where to execute them.
        threads: Threads per run.
        stop: Polled; True stops all runs after they have saved a checkpoint.
        watch: Called with the progress at every poll.
    """
    planned = {run.name: run for run in runs}
    done = [run.name for run in runs if folder.finished(run)]
    for name in done:
        folder.repair(planned[name])
    progress = Progress([name for name in planned if name not in set(done)], done)
    queue, attempts = deque(progress.queued), Counter[str]()
    while queue or progress.running:
        if stop():
            backend.stop()
            progress.queued += progress.running
            progress.running, progress.stopped = [], True
            break
        while queue and len(progress.running) < backend.slots:
            run = planned[queue.popleft()]
            attempts[run.name] += 1
            progress.queued.remove(run.name)
            progress.running.append(run.name)
            backend.start(folder.job(run, threads))
        for name, code in backend.ended().items():
            progress.running.remove(name)
            if folder.finished(planned[name]):
                progress.done.append(name)
            elif attempts[name] < ATTEMPTS:
                progress.queued.append(name)
                queue.appendleft(name)
            else:
                progress.failed[name] = _reason(code)
        watch(progress)
        time.sleep(POLL_SECONDS)
    watch(progress)
    return progress


def _reason(code: int) -> str:
    if code == 0:
        return "ended without an error before its last step"
    return f"killed by signal {-code}" if code < 0 else f"ended with the exit code {code}"
