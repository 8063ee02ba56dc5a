import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning import InputError
from partitioning.measures.features import Feature, describe_features, split_counts


def describe(column, buckets=4):
    features, codes = describe_features({"x": pa.chunked_array([column])}, ["x"], buckets)
    return features[0], codes[0].tolist()


@pytest.mark.parametrize(
    ("column", "categories", "codes"),
    [
        (["b", "a", "b"], ["a", "b"], [1, 0, 1]),
        ([True, False, True], [False, True], [1, 0, 1]),
        ([7, -1, 7], [-1, 7], [1, 0, 1]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["a", "b"], [1, 0, 1]),
        (pa.array([7, -1, 7]).dictionary_encode(), [-1, 7], [1, 0, 1]),
    ],
)
def test_few_values_are_categories(column, categories, codes):
    assert describe(pa.array(column) if isinstance(column, list) else column) == (Feature("x", categories, None), codes)


def test_numbers_are_bucketed_by_quantiles():
    assert describe(pa.array([0.5, 4.5, 2.5, 6.5])) == (Feature("x", None, [2.5, 4.5]), [0, 2, 1, 2])
    feature, codes = describe(pa.array(np.arange(40)))
    assert feature == Feature("x", None, [9.0, 19.0, 29.0])
    assert np.bincount(codes).tolist() == [9, 10, 10, 11]
    assert describe(pa.array(np.arange(20)))[0].categories == list(range(20))


def test_a_skewed_column_has_fewer_buckets_and_a_constant_one_has_one():
    assert describe(pa.array([0.0] * 8 + [1.0, 2.0])) == (Feature("x", None, []), [0] * 10)
    assert describe(pa.array([0.0] * 6 + [1.0] * 4)) == (Feature("x", None, [1.0]), [0] * 6 + [1] * 4)
    assert describe(pa.array([3.5] * 5)) == (Feature("x", None, []), [0] * 5)


@given(
    values=st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 1)), min_size=1, max_size=60), buckets=st.integers(2, 9)
)
def test_no_bucket_is_empty_and_none_is_beyond(values, buckets):
    feature, codes = describe(pa.array(values), buckets)
    assert feature.size <= buckets
    assert np.bincount(codes, minlength=feature.size).min() > 0
    for value, code in zip(values, codes, strict=True):
        assert all((value >= edge) == (code > place) for place, edge in enumerate(feature.edges))


def test_counts_are_split_by_feature():
    features = (Feature("a", ["x", "y"], None), Feature("b", None, [0.5, 1.5]))
    parts = split_counts(np.arange(10).reshape(2, 5), features)
    assert {name: part.tolist() for name, part in parts.items()} == {"a": [[0, 1], [5, 6]], "b": [[2, 3, 4], [7, 8, 9]]}
    assert split_counts(np.zeros((2, 0), int), ()) == {}


@pytest.mark.parametrize(
    ("column", "names", "buckets", "message"),
    [
        ([1, 2], ["y"], 4, "'y', which is no column: choose 'x'"),
        ([1, 2], ["x", "x"], 4, "'x' more than once"),
        ([1.0, float("nan")], ["x"], 4, "'x' has values that are NaN or infinite"),
        ([1.0, float("inf")], ["x"], 4, "'x' has values that are NaN or infinite"),
        ([str(number) for number in range(1001)], ["x"], 4, "'x' has 1001 distinct strings"),
        ([[1], [2]], ["x"], 4, "'x' is of type list"),
        ([1.0, 2.0], ["x"], 1, "buckets is 1"),
    ],
)
def test_wrong_features_are_refused(column, names, buckets, message):
    with pytest.raises(InputError, match=message):
        describe_features({"x": pa.chunked_array([pa.array(column)])}, names, buckets)


def test_categories_and_buckets_have_titles():
    assert Feature("kind", [False, True], None).titles == ["False", "True"]
    assert Feature("height", None, [1.5, 2.0]).titles == ["below 1.5", "1.5 to 2", "from 2"]
    assert Feature("one", None, []).titles == ["all"]


@pytest.mark.parametrize(
    ("edges", "titles"),
    [
        ([30.0, 40.0, 50.0], ["below 30", "30 to 40", "40 to 50", "from 50"]),
        ([0.123456, 1234567.0], ["below 0.1235", "0.1235 to 1.235e+06", "from 1.235e+06"]),
        ([20200101.0, 20200102.0], ["below 20200101", "20200101 to 20200102", "from 20200102"]),
        ([1.00001, 1.00002, 3.0], ["below 1.00001", "1.00001 to 1.00002", "1.00002 to 3", "from 3"]),
        ([0.3, 0.1 + 0.2], ["below 0.29999999999999999", None, "from 0.30000000000000004"]),
        ([2.0, 2.0, 2.5], ["below 2", "2 to 2", "2 to 2.5", "from 2.5"]),
        ([-0.0, 0.0], None),
    ],
)
def test_buckets_have_the_fewest_digits_that_tell_them_apart(edges, titles):
    found = Feature("x", None, edges).titles
    assert len(found) == len(edges) + 1
    assert titles is None or all(wanted in (None, title) for wanted, title in zip(titles, found, strict=True))


@given(edges=st.lists(st.integers(2**53 - 99, 2**53).map(float), min_size=1, unique=True).map(sorted))
def test_different_buckets_have_different_titles(edges):
    titles = Feature("x", None, edges).titles
    assert len(set(titles)) == len(titles)
