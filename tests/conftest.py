"""The order of the suite, where it writes, and a device for those who have none."""

import os
from pathlib import Path

import pytest
from tests.devices import Cuda, stand_in_for_cuda

from mimex.nn.parallel import use_workers

MEMORY = Path("/dev/shm")
ROOM = 2 * 2**30  # bytes; the suite needs less, since folders of tests that pass are removed


def pytest_configure(config):
    """Temporary folders are in memory, where checkpoints of small runs wait for no disk (fsync)."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        found = os.statvfs(MEMORY)
        may_run = not found.f_flag & os.ST_NOEXEC  # as commands of the wheel have to
        if may_run and found.f_bavail * found.f_frsize > ROOM:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_modifyitems(items):
    """Slow tests go first: at the end of a run on several workers no one then waits for one."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def cuda(request, monkeypatch):
    """A device "cuda": a stand-in that keeps to its rules, and a real one where there is one."""
    if request.param == "gpu":
        yield
        return
    stand_in_for_cuda(monkeypatch)
    use_workers(1)  # a mode is of one thread
    with Cuda():
        yield
