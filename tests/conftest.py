"""The order of the suite."""


def pytest_collection_modifyitems(items):
    """Slow tests go first: at the end of a run on several workers no one then waits for one."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
