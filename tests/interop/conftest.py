import pytest

from mimex.bonus import scale


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch):
    """Rollouts of these tests are shorter than the warm-up of the scale."""
    monkeypatch.setattr(scale, "WARMUP", 0)
