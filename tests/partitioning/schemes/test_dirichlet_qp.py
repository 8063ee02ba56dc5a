import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest

import partitioning
from partitioning import InputError, statistics
from partitioning.common.streams import Purpose, generator
from partitioning.schemes.sizes import draw_sizes

LABELS = np.random.default_rng(0).choice(6, size=3000, p=[0.3, 0.25, 0.2, 0.1, 0.1, 0.05])


def table(labels, parts):
    return np.array([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts])


def test_it_has_exactly_the_sizes_that_were_drawn():
    parts = partitioning.dirichlet_qp(LABELS, clients=12, label_alpha=0.1, seed=9)
    drawn, _ = draw_sizes(generator(9, Purpose.SIZES), samples=3000, clients=12, alpha=1.0, least=1)
    assert [part.size for part in parts] == drawn.tolist()


def test_a_large_label_alpha_gives_every_client_the_global_mix():
    labels = np.repeat([0, 1, 2], [300, 200, 100])
    # the target is the even mix (20, 20, 20); the nearest table with class sums (300, 200, 100) adds
    # the same to every client: (30, 20, 10)
    counts = table(labels, partitioning.dirichlet_qp(labels, clients=10, size_alpha=1e6, label_alpha=1e6))
    assert np.abs(counts - [30, 20, 10]).max() <= 1


def test_a_small_label_alpha_gives_a_client_few_classes():
    labels = np.repeat(np.arange(10), 100)
    few, all_ = (
        partitioning.dirichlet_qp(labels, clients=10, size_alpha=1e6, label_alpha=alpha) for alpha in (1e-3, 1e6)
    )
    assert statistics.summarise(table(labels, few)).c_score > 0.8
    assert statistics.summarise(table(labels, all_)).c_score < 0.1


def test_each_client_may_have_a_prior_of_its_own():
    alphas = [1e-3] * 5 + [1e6] * 5
    counts = table(LABELS, partitioning.dirichlet_qp(LABELS, clients=10, size_alpha=1e6, label_alpha=alphas))
    largest = counts.max(axis=1) / counts.sum(axis=1)
    assert largest[:5].mean() > 1.5 * largest[5:].mean()
    towards = np.full((10, 6), 1e-3)
    towards[np.arange(10), np.arange(10) % 3] = 1e6
    counts = table(LABELS, partitioning.dirichlet_qp(LABELS, clients=10, size_alpha=1e6, label_alpha=towards))
    assert counts.argmax(axis=1).tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def test_solvers_give_the_same_partition():
    cvxpy, ours = (
        partitioning.dirichlet_qp(LABELS, clients=30, label_alpha=0.1, solver=solver)
        for solver in ("clarabel", "structured")
    )
    assert np.abs(table(LABELS, cvxpy) - table(LABELS, ours)).sum() <= 4  # ties of the rounding


def test_features_are_skewed_by_their_own_prior_and_the_classes_by_theirs():
    random = np.random.default_rng(1)
    features = {"kind": random.choice(["a", "b", "c"], 3000), "height": random.normal(size=3000)}

    def scores(feature_alpha):
        parts = partitioning.dirichlet_qp(
            LABELS, clients=10, size_alpha=1e6, label_alpha=1.0, features=features, feature_alpha=feature_alpha
        )
        edges = np.quantile(features["height"], [0.25, 0.5, 0.75])
        codes = [LABELS, np.unique(features["kind"], return_inverse=True)[1], np.digitize(features["height"], edges)]
        return np.array([statistics.c_score(table(code, parts)) for code in codes])

    skewed, even = scores(0.05), scores(1e6)
    assert (skewed[1:] > even[1:] + 0.4).all()
    assert abs(skewed[0] - even[0]) < 0.3
    only_kind = scores({"kind": 0.05, "height": 1e6})
    assert only_kind[1] > even[1] + 0.4
    assert only_kind[2] < skewed[2] - 0.4


def test_algorithm_3_gives_another_table_near_the_optimum():
    options = {"clients": 30, "label_alpha": 0.5, "seed": 4}
    optimum = partitioning.dirichlet_qp(LABELS, **options)
    random = partitioning.dirichlet_qp(LABELS, **options, randomise="algorithm-3")
    assert [part.size for part in optimum] == [part.size for part in random]
    assert not np.array_equal(table(LABELS, optimum), table(LABELS, random))
    assert 1 < random.report["algorithm_3"]["objective"] / random.report["objective"] < 1.2**2


def test_the_report_says_how_the_programme_ended():
    report = partitioning.dirichlet_qp(LABELS, clients=30, label_alpha=0.1).report
    assert report["problem"] == 1
    assert report["solver"] == "clarabel"
    assert report["residual"] < 1e-6
    assert report["objective"] <= report["objective_rounded"] < 1.05 * report["objective"]
    fit = report["total_variation_to_asked"]["classes"]
    assert 0 < fit["mean"] <= fit["max"] <= 1
    assert 0 <= report["sizes_to_asked"] < 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": {"a": [1, 2]}, "feature_alpha": 1.0}, "feature 'a' has 2 values for 3000 samples"),
        ({"features": {"a": [None] + ["b"] * 2999}, "feature_alpha": 1.0}, "feature 'a' has missing values: fill them"),
        ({"features": {"a": np.ones((3000, 2))}, "feature_alpha": 1.0}, "feature 'a' is numpy.ndarray of shape"),
        ({"features": {"a": [[1], [1, 2]]}, "feature_alpha": 1.0}, "feature 'a' is list: give one number or text"),
        ({"features": {"a": LABELS}, "feature_alpha": {"b": 1.0}}, "feature_alpha is for 'b' and the features are 'a'"),
        ({"features": {"a": LABELS}, "feature_alpha": -1.0}, "feature_alpha.a is -1.0"),
        ({"label_alpha": [1.0, 2.0]}, "label_alpha has the shape"),
        ({"solver": "simplex"}, "solver is 'simplex'"),
    ],
)
def test_wrong_input_is_named(options, message):
    with pytest.raises(InputError, match=message):
        partitioning.dirichlet_qp(LABELS, clients=4, **options)


def test_the_number_of_threads_does_not_matter():
    # Large enough that linear algebra would use several; this process uses one.
    code = """
import hashlib, json, numpy as np, partitioning
labels = np.random.default_rng(0).integers(0, 300, 20_000)
parts = partitioning.dirichlet_qp(labels, clients=500, label_alpha=0.1)
print(hashlib.sha256(np.concatenate(parts).tobytes()).hexdigest(), json.dumps(parts.report))
"""
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    with redirect_stdout(StringIO()) as said:
        exec(code, {})
    assert done.stdout == said.getvalue()
