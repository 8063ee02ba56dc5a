"""Properties that every scheme has, and what the registry refuses."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import partitioning
from partitioning import InputError
from partitioning.schemes.registry import resolve, takes

CASES = [
    ("iid", {}),
    ("quantity", {"size_alpha": 0.3}),
    ("quantity", {"min_size": 0}),
    ("dirichlet-qp", {}),
    ("dirichlet-qp", {"label_alpha": 0.1, "solver": "structured"}),
    ("dirichlet-qp", {"size_alpha": 1e-3, "label_alpha": 1e6}),
    ("dirichlet-qp", {"size_alpha": 1e6, "label_alpha": 1e-3}),
    ("dirichlet-qp", {"size_alpha": 0.1, "min_size": 0}),
    ("dirichlet-qp", {"randomise": "algorithm-3", "burn_in": 5, "search": 5, "step": 0.5}),
    ("dirichlet-qp", {"features": "two", "feature_alpha": 0.1, "solver": "structured"}),
    ("dirichlet", {}),
    ("dirichlet", {"label_alpha": 1e-3}),
    ("dirichlet", {"label_alpha": 1e6}),
    ("dirichlet-per-class", {}),
    ("dirichlet-per-class", {"label_alpha": 1e-3}),
    ("dirichlet-per-class", {"label_alpha": 1e6, "min_size": 0}),
    ("shards", {"shards_per_client": 1}),
    ("shards-unbalanced", {"shards": "samples", "most_shards": 200}),
    ("labels-per-client", {"classes_per_client": "all"}),
    ("counts", {"table": "half"}),
    ("natural", {"column": "people"}),
    ("natural", {"column": "people", "min_size": 2}),
    ("domains", {"domain": "one"}),
    ("domains", {"domain": "one", "fraction": 0.5}),
    ("feature-noise", {}),
    ("concept", {}),
]
LEAVES_OUT = {"counts", "natural", "domains"}
MAY_REFUSE = {"labels-per-client", "concept", "natural", "domains", "shards-unbalanced"}
cases = pytest.mark.parametrize(("scheme", "given_"), CASES, ids=lambda value: value if isinstance(value, str) else "")


def call(scheme, given_, labels, clients, seed):
    """Partition, with the values that depend on the labels filled in."""
    classes = np.unique(labels, return_counts=True)[1]
    random = np.random.default_rng(5)
    values = {
        "two": {"kind": random.integers(0, 3, labels.size), "height": random.normal(size=labels.size)},
        "samples": labels.size,
        "all": len(classes),
        "half": [classes // 2 for _ in range(2)],
        "people": random.integers(0, 4, labels.size),
        "one": np.zeros(labels.size, int),
    }
    filled = {name: values[v] if isinstance(v, str) and v in values else v for name, v in given_.items()}
    number = {"clients": clients} if takes(scheme, "clients") else {}
    return partitioning.partition(labels, scheme, seed=seed, **number, **filled)


def attempt(scheme, given_, labels, clients, seed):
    """Partition; None where the scheme refuses for a reason that is in the labels."""
    try:
        return call(scheme, given_, labels, clients, seed)
    except InputError:
        if scheme not in MAY_REFUSE:
            raise
        return None


@st.composite
def labelled(draw):
    samples = draw(st.integers(1, 60))
    classes = draw(st.integers(1, 8))
    labels = np.random.default_rng(draw(st.integers(0, 99))).integers(0, classes, samples)
    return labels, draw(st.integers(1, samples))


@cases
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(data=labelled(), seed=st.integers(0, 2**70))
def test_parts_are_disjoint_complete_and_the_seed_s_alone(scheme, given_, data, seed):
    labels, clients = data
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()  # noqa: NPY002
    parts = attempt(scheme, given_, labels, clients, seed)
    if parts is None:
        return
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert not takes(scheme, "clients") or len(parts) == clients
    assert all(part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in parts)
    rows = np.sort(np.concatenate(parts))
    assert np.all(np.diff(rows) > 0)
    assert scheme in LEAVES_OUT or np.array_equal(rows, np.arange(labels.size))
    if takes(scheme, "min_size"):
        assert min(part.size for part in parts) >= given_.get("min_size", 1)
    np.random.seed(5)  # noqa: NPY002
    again = call(scheme, given_, labels, clients, seed)
    assert all(np.array_equal(part, other) for part, other in zip(parts, again, strict=True))


@cases
def test_another_seed_gives_another_partition(scheme, given_):
    labels = np.repeat(np.arange(5), 40)
    first, second = (call(scheme, given_, labels, 10, seed) for seed in (0, 1))
    same = np.array_equal(np.concatenate(first), np.concatenate(second))
    # The data decide who has what in `natural`, and in `domains` where one client has all of one.
    assert same == (scheme == "natural" or given_ == {"domain": "one"})


@pytest.mark.parametrize(
    ("scheme", "given_"), [case for case in CASES if takes(case[0], "clients") and case[0] not in MAY_REFUSE]
)
@pytest.mark.parametrize("labels", [[7], [7, 7, 7], ["b", "a", "b"], [True, False, True]])
def test_clients_may_be_one_or_as_many_as_samples(scheme, given_, labels):
    for clients in (1, len(labels)):
        parts = call(scheme, given_, np.array(labels), clients, 0)
        assert sorted(np.concatenate(parts)) == list(range(len(labels)))


@pytest.mark.parametrize("scheme", ["iid", "dirichlet-qp", "dirichlet", "dirichlet-per-class", "shards", "concept"])
def test_a_thousand_classes(scheme):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(1000), 3))
    parts = partitioning.partition(labels, scheme, clients=20)
    assert sum(part.size for part in parts) == 3000


def test_parameters_are_resolved_alike_from_any_number():
    forms = [{"label_alpha": 1}, {"label_alpha": 1.0}, {"label_alpha": np.float32(1)}, {}]
    assert len({str(resolve("dirichlet-qp", form)) for form in forms}) == 1
    assert resolve("dirichlet-qp", {"label_alpha": np.ones(3)})["label_alpha"] == [1.0, 1.0, 1.0]


def test_numbers_of_numpy_inside_a_parameter_are_plain_ones_in_the_manifest(tmp_path):
    rows = pa.table({"label": [0, 1] * 10})
    plain = partitioning.make(rows, tmp_path / "a", scheme="counts", table=[[1, 2], [3, 4]])
    given = [np.array([1, 2]), (np.int64(3), np.uint8(4))]
    assert partitioning.make(rows, tmp_path / "b", scheme="counts", table=given).digest == plain.digest
    priors = resolve("dirichlet-qp", {"feature_alpha": {"a": np.float64(0.5), "b": np.array([1.0])}})
    assert json.dumps(priors["feature_alpha"]) == '{"a": 0.5, "b": [1.0]}'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "iidd"}, "scheme 'iidd' is unknown.*did you mean 'iid'"),
        ({"scheme": ["iid"]}, r"scheme \['iid'\] is unknown: choose"),
        ({"scheme": "iid", "label_alpha": 1}, "'iid' does not take 'label_alpha': it takes nothing"),
        ({"scheme": "natural", "column": [0] * 20}, "'natural' finds the clients in the data: leave clients out"),
        ({"scheme": "counts", "clients": None}, "'counts' needs table"),
        ({"scheme": "iid", "features": {}}, "'iid' does not take 'features'"),
        ({"clients": None}, "'dirichlet-qp' needs clients: give the number of clients"),
        ({"label_alfa": 1}, "does not take 'label_alfa'.*did you mean 'label_alpha'"),
        ({"label_alpha": 0}, "label_alpha is 0.0: give a finite number above 0"),
        ({"size_alpha": float("nan")}, "size_alpha is nan"),
        ({"size_alpha": float("inf")}, "size_alpha is inf"),
        ({"size_alpha": "1"}, "size_alpha is '1'"),
        ({"clients": 0}, "clients is 0: give a whole number from 1 to"),
        ({"clients": 2.5}, "clients is 2.5"),
        ({"clients": True}, "clients is True"),
        ({"clients": 21}, "21 clients of at least 1 need 21 samples and there are 20"),
        ({"clients": 7, "min_size": 3}, "7 clients of at least 3 need 21 samples and there are 20"),
        ({"min_size": -1}, "min_size is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"randomise": "yes"}, "randomise is 'yes': give 'none' or 'algorithm-3'"),
        ({"feature_alpha": 0.1}, "feature_alpha is given without features"),
        ({"labels": []}, "labels: the shape is"),
        ({"labels": [[1, 2]]}, "labels: the shape is"),
        ({"labels": [0.5, 1.0]}, "labels: the type is float64"),
        ({"labels": ["a", None]}, "labels: the type is object"),
    ],
)
def test_wrong_input_is_named_in_one_line(options, message):
    call = {"labels": np.repeat([0, 1], 10), "scheme": "dirichlet-qp", "clients": 4} | options
    with pytest.raises(InputError, match=message) as caught:
        partitioning.partition(call.pop("labels"), call.pop("scheme"), **call)
    assert "\n" not in str(caught.value)
