import numpy as np
import pytest

from partitioning.projection import project


def test_a_target_with_the_right_sums_is_its_own_projection():
    target = np.array([[2.0, 1.0], [0.5, 3.5]])
    table = project(target, np.array([3, 4]), np.array([2.5, 4.5]))
    assert np.allclose(table, target, atol=1e-5)


def test_an_interior_optimum_known_by_hand():
    # With A_00 = a the table is (a, 4 - a; 5 - a, a - 1), so we minimise, with T = (4, 0; 1, 3),
    # (a-4)^2 + (4-a)^2 + (4-a)^2 + (a-4)^2: a = 4.
    assert np.allclose(
        project(np.array([[4.0, 0], [1, 3]]), np.array([4, 4]), np.array([5, 3])), [[4, 0], [1, 3]], atol=1e-5
    )
    # With T = (2, 2; 2, 2) the four terms are |a-2|, |2-a|, |3-a|, |a-3|: a = 2.5.
    assert np.allclose(
        project(np.full((2, 2), 2.0), np.array([4, 4]), np.array([5, 3])), [[2.5, 1.5], [2.5, 1.5]], atol=1e-5
    )


def test_an_optimum_on_the_boundary_known_by_hand():
    # Both clients want only class 0, which has 2 samples: (a, 3 - a; 2 - a, a - 1) has a in [1, 2], and
    # (a-3)^2 + (3-a)^2 + (1-a)^2 + (a-1)^2 has its minimum at a = 2, the edge.
    table = project(np.array([[3.0, 0], [1, 0]]), np.array([3, 1]), np.array([2, 2]))
    assert np.allclose(table, [[2, 1], [0, 1]], atol=1e-5)


@pytest.mark.parametrize("scale", [1, 10**9])
def test_sums_hold_for_small_and_huge_totals(scale):
    random = np.random.default_rng(0)
    rows = random.integers(1, 100, 30) * scale
    columns = np.full(6, rows.sum() // 6)
    columns[0] += rows.sum() - columns.sum()
    table = project(random.dirichlet(np.full(6, 0.1), 30) * rows[:, None], rows, columns)
    assert np.allclose(table.sum(axis=1), rows, rtol=1e-7)
    assert np.allclose(table.sum(axis=0), columns, rtol=1e-7)
