import numpy as np
import pytest

from mimex.train.coverage import Coverage

CELLS = 24**3


def test_cells_count_once_and_outside_not_at_all():
    coverage = Coverage()
    assert coverage.share == 0
    coverage.visit(
        np.array([[0.51, 0.01, 0.51], [0.52, 0.02, 0.53], [5.0, 0.0, 0.5], [-0.01, 0, 0]])
    )
    assert coverage.share == pytest.approx(1 / CELLS)
    coverage.visit(np.array([[0.57, 0.01, 0.51]]))
    assert coverage.share == pytest.approx(2 / CELLS)


def test_a_saved_coverage_goes_on():
    one, other = Coverage(), Coverage()
    one.visit(np.array([[0.5, 0.0, 0.5]]))
    other.load_state_dict(one.state_dict())
    assert other.share == one.share > 0
