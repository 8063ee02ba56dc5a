import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.qp.rounding import round_table
from partitioning.qp.solve import solve
from tests.kit.problems import drawn


def test_entries_go_to_the_nearer_side_where_the_sums_allow():
    table = np.array([[0.9, 1.1], [2.1, 0.9]])
    assert round_table(table, np.array([2, 3]), np.array([3, 2])).tolist() == [[1, 1], [2, 1]]
    halves = round_table(np.full((2, 2), 0.5), np.array([1, 1]), np.array([1, 1]))
    assert halves.tolist() in ([[1, 0], [0, 1]], [[0, 1], [1, 0]])


@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 2**32), st.sampled_from([0.0, 1e-9, 1e-7]))
def test_sums_are_exact_and_no_entry_moves_by_more_than_one(clients, classes, seed, noise):
    random = np.random.default_rng(seed)
    whole = random.integers(0, 5, (clients, classes))
    table = whole.astype(float)
    for _ in range(10):  # rectangle moves keep both sums and make entries fractional
        (i, k), (j, m) = random.integers(0, clients, 2), random.integers(0, classes, 2)
        if i != k and j != m:
            step = random.uniform(0, min(table[i, j], table[k, m]))
            table[[i, k], [j, m]] -= step
            table[[i, k], [m, j]] += step
    noisy = table + random.uniform(-noise, noise, table.shape)
    rounded = round_table(noisy, whole.sum(axis=1), whole.sum(axis=0))
    assert np.array_equal(rounded.sum(axis=1), whole.sum(axis=1))
    assert np.array_equal(rounded.sum(axis=0), whole.sum(axis=0))
    assert np.abs(rounded - table).max() <= 1 + 1e-6


def test_sums_that_cannot_be_met_are_an_error():
    with pytest.raises(RuntimeError, match="rounding 2 x 1 entries: the sums of the rows are wrong"):
        round_table(np.array([[0.5, 0.5]]), np.array([1]), np.array([3, 3]))


@pytest.mark.parametrize("shape", [(300, 5), (5, 300), (40, 40)])
def test_entries_move_little_more_than_to_the_nearest_number(shape):
    problem = drawn(*shape, 1.0)
    table = solve(problem, "structured").table
    moved = np.abs(round_table(table, problem.rows, problem.columns) - table).mean()
    assert moved <= 1.2 * np.abs(np.rint(table) - table).mean()
