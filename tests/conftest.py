"""The order of the suite, and a device for those who have none."""

import pytest
from tests.devices import Cuda, stand_in_for_cuda

from mimex.nn.parallel import use_workers


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
