import numpy as np
import pytest

from partitioning import InputError, dirichlet_qp
from partitioning.qp.problem import Problem
from partitioning.qp.solve import GENERIC_ENTRIES, solve
from tests.kit.problems import drawn, with_features

SOLVERS = pytest.mark.parametrize("solver", ["clarabel", "structured"])


@SOLVERS
def test_optima_known_by_hand(solver):
    def optimum(wanted, rows, columns):
        return solve(Problem.of_classes(np.array(wanted), np.array(rows), np.array(columns)), solver).table

    # A target with the right sums is its own optimum.
    assert np.allclose(optimum([[2.0, 1.0], [0.0, 4.0]], [3, 4], [2, 5]), [[2, 1], [0, 4]], atol=1e-5)
    # With A_00 = a the table is (a, 4 - a; 5 - a, a - 1), and all wanted 2: |a-2|, |2-a|, |3-a|, |a-3|, so a = 2.5.
    assert np.allclose(optimum(np.full((2, 2), 2.0), [4, 4], [5, 3]), [[2.5, 1.5], [2.5, 1.5]], atol=1e-5)
    # Both clients want only class 0, which has 2 samples: (a, 3 - a; 2 - a, a - 1) has a in [1, 2], and
    # (a-3)^2 + (3-a)^2 + (1-a)^2 + (a-1)^2 has its minimum at a = 2, the edge.
    assert np.allclose(optimum([[3.0, 0], [1, 0]], [3, 1], [2, 2]), [[2, 1], [0, 1]], atol=1e-5)


@pytest.mark.parametrize(("clients", "classes"), [(1, 7), (7, 1), (100, 10), (12, 100), (150, 40)])
@pytest.mark.parametrize("alpha", [1e-3, 0.1, 1.0, 1e6])
@pytest.mark.parametrize("skew", [0.1, 1e6])
def test_the_structured_solver_agrees_with_cvxpy(clients, classes, alpha, skew):
    problem = drawn(clients, classes, alpha, skew=skew)
    total = int(problem.rows.sum())
    ours, theirs = solve(problem, "structured"), solve(problem, "clarabel")
    assert abs(ours.loss - theirs.loss) <= max(1e-6 * theirs.loss, 1e-9 * total**2)
    assert ours.table.min() >= 0
    assert ours.residual <= 1e-9 * total
    assert np.allclose(ours.table, theirs.table, atol=1e-3 * problem.rows.mean())


@SOLVERS
@pytest.mark.parametrize("scale", [1, 10**9])
def test_sums_hold_for_small_and_huge_totals(solver, scale):
    problem = drawn(30, 6, 0.1, scale=scale)
    assert solve(problem, solver).residual <= 1e-9 * problem.rows.sum()


def test_auto_leaves_large_tables_to_the_structured_solver():
    assert solve(drawn(10, 5, 1.0)).solver == "clarabel"
    large = drawn(GENERIC_ENTRIES // 5 + 1, 5, 1.0)
    assert solve(large).solver == "structured"


@pytest.mark.parametrize("solver", ["osqp", "scs"])
def test_any_solver_of_cvxpy_ends_with_exact_sums(solver):
    problem = drawn(20, 4, 1.0)
    solution = solve(problem, solver)
    assert solution.residual <= 1e-9 * problem.rows.sum()
    assert solution.loss == pytest.approx(solve(problem, "structured").loss, rel=1e-3)


def test_a_solver_that_is_not_there_is_named():
    with pytest.raises(
        InputError, match=r"solver is 'clarabell': give 'auto', 'structured' or .*did you mean 'clarabel'"
    ):
        solve(drawn(5, 3, 1.0), "clarabell")


def test_problem_2_counts_every_category():
    problem = with_features(6)
    table = np.random.default_rng(1).integers(0, 9, problem.shape)
    loss = 0.0
    for client in range(6):
        for place in range(9):
            count = sum(table[client, u] for u in range(20) if place in problem.places[u])
            loss += (count - problem.wanted[client, place]) ** 2
    assert problem.loss(table) == pytest.approx(loss)


@pytest.mark.parametrize("clients", [1, 6, 60])
def test_problem_2_is_solved_alike_by_both(clients):
    problem = with_features(clients)
    ours, theirs = solve(problem, "structured"), solve(problem, "clarabel")
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-5, abs=1e-9 * float(problem.rows.sum()) ** 2)
    assert ours.residual <= 1e-9 * problem.rows.sum()
    assert ours.table.min() >= 0


@pytest.mark.parametrize(("samples", "clients", "classes"), [(60_000, 2500, 10), (29_530, 2953, 13), (1000, 500, 7)])
@pytest.mark.parametrize("label_alpha", [1e-12, 1e-6, 1e-3])
@pytest.mark.parametrize("size_alpha", [1e-3, 1.0])
def test_the_structured_solver_ends_where_one_client_has_nearly_all(samples, clients, classes, label_alpha, size_alpha):
    labels = np.arange(samples) % classes
    alphas = {"label_alpha": label_alpha, "size_alpha": size_alpha}
    for seed in range(3):
        parts = dirichlet_qp(labels, clients=clients, solver="structured", seed=seed, **alphas)
        assert sum(part.size for part in parts) == samples
