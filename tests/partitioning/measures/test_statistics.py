import dataclasses
import tracemalloc

import numpy as np
import pytest
import scipy.stats
from scipy.spatial.distance import jensenshannon

from partitioning import InputError
from partitioning.measures.statistics import (
    Heterogeneity,
    Statistics,
    feature_scores,
    fit,
    fit_sizes,
    measure_skew,
    summarise,
)


@pytest.fixture(params=[(1, 1), (3, 2), (200, 10), (300, 970)], ids=str)
def counts(request):
    """Tables with empty clients, absent classes and clients of one class; the last fills several pieces."""
    table = np.random.default_rng(5).negative_binomial(0.3, 0.05, request.param)
    table[::7, 1:] = 0
    table[3::11] = 0
    table[0, 0] += 1
    return table


def shares_one_by_one(counts):
    mix = counts.sum(axis=0) / counts.sum()
    return [row / row.sum() for row in counts if row.sum()], mix


def test_a_table_summarised_by_hand():
    # global shares (1/2, 1/2); clients (1, 0), (0, 1), (1/2, 1/2) are 1, 1 and 0 away from them
    found = summarise(np.array([[4, 0], [0, 4], [1, 1]]))
    assert found == Statistics(
        clients=3,
        samples=10,
        classes=2,
        min=2,
        max=4,
        mean=pytest.approx(10 / 3),
        std=pytest.approx(np.std([4, 4, 2])),
        c_score=pytest.approx(2 / 3),
    )


def test_a_client_without_samples_has_no_class_shares():
    assert summarise(np.array([[2, 2], [0, 0]])).c_score == 0
    assert measure_skew(np.array([[4, 0], [0, 0], [0, 4]])) == measure_skew(np.array([[4, 0], [0, 4]]))


def test_the_skew_of_a_table_by_hand():
    # One class a client, of two: a bit between a client's mix and the global one, and half of it to be moved.
    assert measure_skew(np.array([[4, 0], [0, 4]])) == Heterogeneity(
        0.0, 1.0, pytest.approx(0.311278, abs=1e-6), 0.5, 0.0, 1.0
    )
    assert measure_skew(np.array([[6, 6], [1, 1]])) == Heterogeneity(1.0, 1.0, 0.0, 0.0, pytest.approx(5 / 14), 2.0)
    assert measure_skew(np.zeros((2, 3), dtype=int)) == Heterogeneity(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_the_skew_is_what_scipy_finds_one_client_at_a_time(counts):
    shares, mix = shares_one_by_one(counts)
    places = np.arange(mix.size)
    sizes = [int(row.sum()) for row in counts if row.sum()]
    differences = np.abs(np.subtract.outer(sizes, sizes))
    assert dataclasses.asdict(measure_skew(counts)) == pytest.approx(
        {
            "label_entropy": np.mean([scipy.stats.entropy(row, base=2) for row in shares]),
            "global_entropy": scipy.stats.entropy(mix, base=2),
            "js_divergence": np.mean([jensenshannon(row, mix, base=2) ** 2 for row in shares]),
            "earth_movers": np.mean([sum(max(a - b, 0.0) for a, b in zip(row, mix, strict=True)) for row in shares]),
            "size_gini": differences.sum() / (2 * len(sizes) ** 2 * np.mean(sizes)),
            "labels": np.mean([len(places[row > 0]) for row in shares]),
        },
        rel=1e-9,
        abs=1e-12,
    )


def test_the_c_score_is_twice_the_earth_movers_distance(counts):
    assert summarise(counts).c_score == pytest.approx(2 * measure_skew(counts).earth_movers)
    shares, mix = shares_one_by_one(counts)
    assert summarise(counts).c_score == pytest.approx(np.mean([np.abs(row - mix).sum() for row in shares]))


def test_every_feature_has_its_c_score(counts):
    found = feature_scores({"colour": counts, "shape": np.array([[4, 0], [0, 4], [1, 1]])})
    assert found == {"colour": summarise(counts).c_score, "shape": pytest.approx(2 / 3)}
    assert feature_scores({}) == {}


def test_how_far_shares_are_from_those_asked():
    counts = np.array([[3, 1], [0, 0], [2, 2]])
    assert fit(counts, [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]]) == (0.125, 0.25)
    assert fit(counts, counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)) == (0.0, 0.0)
    assert fit(np.zeros((2, 2), dtype=int), np.ones((2, 2)) / 2) == (0.0, 0.0)


def test_the_fit_of_many_clients_is_that_of_a_plain_loop(counts):
    asked = np.random.default_rng(1).dirichlet(np.ones(counts.shape[1]), len(counts))
    distances = [np.abs(row / row.sum() - wish).sum() / 2 for row, wish in zip(counts, asked, strict=True) if row.sum()]
    assert fit(counts, asked) == (pytest.approx(np.mean(distances)), pytest.approx(np.max(distances)))


def test_how_far_sizes_are_from_those_asked():
    found = fit_sizes(np.array([6, 4, 0]), [5.5, 4.0, 0.5])
    assert found == (pytest.approx(1 / 30), pytest.approx(0.05))
    assert all(type(number) is float for number in found)


@pytest.mark.parametrize("asked", [[[0.5, 0.5]], [0.5, 0.5], [[1.0], [1.0]]])
def test_shares_of_another_shape_are_refused(asked):
    with pytest.raises(InputError, match=r"asked shares have the shape .* and the clients' \[2, 2\]"):
        fit(np.ones((2, 2), dtype=int), asked)
    with pytest.raises(InputError, match="asked sizes have the shape"):
        fit_sizes(np.array([1, 2]), [3])


def test_many_clients_take_little_memory():
    counts = np.random.default_rng(0).integers(0, 50, (300_000, 10), dtype=np.int64)
    tracemalloc.start()
    try:
        assert measure_skew(counts).labels == pytest.approx(9.8, abs=0.01)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < counts.nbytes  # some vectors of sizes, and a piece of the shares
