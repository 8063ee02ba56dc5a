import numpy as np
import pytest

from partitioning import InputError
from partitioning.qp.problem import Problem
from partitioning.qp.randomise import Walk, randomise
from partitioning.qp.solve import solve
from tests.kit.problems import drawn, with_features

PROBLEMS = pytest.mark.parametrize("problem", [drawn(20, 6, 0.5), with_features(8)], ids=["(1)", "(2)"])


def walked(problem, seed=0, **walk):
    optimum = solve(problem, "structured").table
    walk = Walk(**{"burn_in": 3000, "search": 3000, "step": 0.5} | walk)
    return optimum, randomise(problem, optimum, walk, np.random.default_rng(seed))


@PROBLEMS
def test_moves_keep_the_sums_and_no_entry_becomes_negative(problem):
    optimum, end = walked(problem, ratio=1e9)
    assert problem.residual(end.table) <= 1e-9 * problem.rows.sum()
    assert end.table.min() >= 0
    assert not np.allclose(end.table, optimum)


@PROBLEMS
def test_the_loss_that_moves_update_is_the_loss(problem):
    from partitioning.qp.randomise import _moves, _WalkState

    state = _WalkState(problem, solve(problem, "structured").table)
    for move, _ in zip(_moves(problem, 0.5, np.random.default_rng(0)), range(2000), strict=False):
        state.move(*move)
    assert state.loss == pytest.approx(problem.loss(state.table()), rel=1e-9)


@PROBLEMS
def test_the_burn_in_ends_near_the_optimum(problem):
    _, end = walked(problem, ratio=1.1, step=0.01, burn_in=200_000, search=1)
    assert end.burned_in < 200_000
    assert 1.05 < (end.loss / end.optimum) ** 0.5 < 1.2


def test_the_best_table_of_the_search_is_kept():
    problem = drawn(20, 6, 0.5)
    _, short = walked(problem, search=1)
    _, long = walked(problem, search=3000)  # the same walk, further
    assert long.loss <= short.loss


def test_a_move_of_half_an_entry_by_hand():
    # From (4, 0; 0, 4) the one move that can be made takes the same from both diagonal entries.
    problem = Problem.of_classes(np.array([[4.0, 0], [0, 4]]), np.array([4, 4]), np.array([4, 4]))
    end = randomise(problem, problem.wanted, Walk(burn_in=0, search=1, step=1.0), np.random.default_rng(2))
    moved = 4 - end.table[0, 0]
    assert np.allclose(end.table, [[4 - moved, moved], [moved, 4 - moved]])
    assert end.loss == pytest.approx(4 * moved**2)


def test_an_optimum_of_zero_takes_the_whole_burn_in():
    problem = Problem.of_classes(np.full((6, 3), 10.0), np.full(6, 30), np.full(3, 60))
    assert walked(problem)[1].burned_in == 3000


def test_seeds_decide():
    problem = drawn(20, 6, 0.5)
    first, again, other = (walked(problem, seed=seed)[1].table for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("walk", "message"),
    [
        ({"burn_in": -1}, "burn_in is -1: give a whole number from 0 to"),
        ({"search": 0}, "search is 0"),
        ({"step": 1.5}, "step is 1.5: give a share above 0, 1 at most"),
        ({"ratio": 0.9}, "burn_in_ratio is 0.9: give 1 or more"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(walk, message):
    with pytest.raises(InputError, match=message):
        Walk(**walk)
