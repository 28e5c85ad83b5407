import numpy as np
import pytest

from mimex.train.coverage import FIRST_STATES, Coverage, HandPlanes, Plane, PrincipalPlane

CELLS = 24**3


def test_cells_count_once_and_outside_not_at_all():
    coverage = Coverage()
    assert coverage.fraction == 0
    coverage.visit(
        np.array([[0.51, 0.01, 0.51], [0.52, 0.02, 0.53], [5.0, 0.0, 0.5], [-0.01, 0, 0]])
    )
    assert coverage.fraction == pytest.approx(1 / CELLS)
    coverage.visit(np.array([[0.57, 0.01, 0.51]]))
    assert coverage.fraction == pytest.approx(2 / CELLS)


def test_a_saved_coverage_is_restored():
    one, other = Coverage(), Coverage()
    one.visit(np.array([[0.5, 0.0, 0.5]]))
    other.load_state_dict(one.state_dict())
    assert other.fraction == one.fraction > 0


def test_points_fall_into_the_cell_that_holds_them():
    plane = Plane("", ("", ""), (0.0, -1.0), (2.0, 1.0), (4, 2))
    points = np.array([[0.1, -0.9], [0.6, -0.9], [1.99, 0.99], [2.0, 0.0], [0.0, -1.1]])
    assert plane.flat_cells(points).tolist() == [0, 2, 7, -1, -1]


def test_a_hand_is_seen_from_above_and_from_the_side():
    planes = HandPlanes()
    above, side = planes.points(np.array([[0.5, -0.3, 1.0]]))
    assert above.tolist() == [[0.5, -0.3]]
    assert side.tolist() == [[0.5, 1.0]]
    assert [p.cells for p in planes.planes] == [(24, 24), (24, 24)]
    # The cells are those of the coverage: 0.05 m.
    assert planes.planes[0].flat_cells(above).tolist() == [10 * 24 + 6]


def test_principal_axes_are_those_of_the_first_states():
    rng = np.random.default_rng(0)
    common = rng.normal(size=FIRST_STATES)
    states = np.stack([common, 100 * common, rng.normal(size=FIRST_STATES)], axis=1)
    states = np.concatenate([states, np.full((FIRST_STATES, 1), 7.0)], axis=1)
    plane = PrincipalPlane()
    [points] = plane.points(states)
    z = np.sign(points) * np.expm1(np.abs(points))  # undo the shrinking
    np.testing.assert_allclose(z.std(axis=0), 1.0)
    # The first axis is what two numbers share, whatever their units; the second is the third.
    assert abs(np.corrcoef(z[:, 0], common)[0, 1]) == pytest.approx(1, abs=1e-3)
    assert abs(np.corrcoef(z[:, 1], states[:, 2])[0, 1]) == pytest.approx(1, abs=1e-3)
    # Later states do not move the axes.
    [far] = plane.points(states[:5] + 1000.0)
    np.testing.assert_array_equal(plane.points(states)[0], points)
    assert not np.array_equal(far, points[:5])


def test_states_of_one_number_or_none_that_differs_are_mapped():
    assert np.isfinite(PrincipalPlane().points(np.arange(8.0)[:, None])[0]).all()
    assert (PrincipalPlane().points(np.ones((5, 3)))[0] == 0).all()
