import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partitioning
from partitioning import InputError
from partitioning.sizes import draw_sizes
from partitioning.streams import Purpose, generator

CASES = [
    ("iid", {}),
    ("dirichlet-qp", {}),
    ("dirichlet-qp", {"label_alpha": 0.1}),
    ("dirichlet-qp", {"size_alpha": 1e-3, "label_alpha": 1e6}),
    ("dirichlet-qp", {"size_alpha": 1e6, "label_alpha": 1e-3}),
    ("dirichlet-qp", {"size_alpha": 0.1, "min_size": 0}),
]
cases = pytest.mark.parametrize(("scheme", "parameters"), CASES)


@st.composite
def labelled(draw):
    samples = draw(st.integers(1, 120))
    classes = draw(st.integers(1, 8))
    labels = np.random.default_rng(draw(st.integers(0, 99))).integers(0, classes, samples)
    return labels, draw(st.integers(1, samples))


@cases
@settings(deadline=None, max_examples=25)
@given(data=labelled(), seed=st.integers(0, 2**70))
def test_every_sample_is_on_one_client_and_seeds_decide(scheme, parameters, data, seed):
    labels, clients = data
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()  # noqa: NPY002
    parts = partitioning.partition(labels, scheme, clients=clients, seed=seed, **parameters)
    assert len(parts) == clients
    assert all(part.dtype == np.int64 for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(labels.size))
    assert min(part.size for part in parts) >= parameters.get("min_size", 1)
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    again = partitioning.partition(labels, scheme, clients=clients, seed=seed, **parameters)
    assert all(np.array_equal(part, other) for part, other in zip(parts, again, strict=True))


@cases
def test_another_seed_gives_another_partition(scheme, parameters):
    labels = np.repeat(np.arange(5), 40)
    first, second = (
        np.concatenate(partitioning.partition(labels, scheme, clients=10, seed=seed, **parameters)) for seed in (0, 1)
    )
    assert not np.array_equal(first, second)


@cases
@pytest.mark.parametrize("labels", [[7], [7, 7, 7], ["b", "a", "b"], [True, False, True]])
def test_clients_may_be_one_or_as_many_as_samples(scheme, parameters, labels):
    for clients in (1, len(labels)):
        parts = partitioning.partition(labels, scheme, clients=clients, **parameters)
        assert sorted(np.concatenate(parts)) == list(range(len(labels)))


def test_iid_sizes_differ_by_at_most_one():
    sizes = [part.size for part in partitioning.iid(np.zeros(17, int), clients=5)]
    assert sorted(sizes) == [3, 3, 3, 4, 4]


def test_dirichlet_qp_has_exactly_the_sizes_that_were_drawn():
    labels = np.random.default_rng(0).integers(0, 4, 300)
    parts = partitioning.dirichlet_qp(labels, clients=12, label_alpha=0.1, seed=9)
    drawn = draw_sizes(generator(9, Purpose.SIZES), samples=300, clients=12, alpha=1.0, least=1)
    assert [part.size for part in parts] == drawn.tolist()


def test_a_large_label_alpha_gives_every_client_the_global_mix():
    labels = np.repeat([0, 1, 2], [300, 200, 100])
    for part in partitioning.dirichlet_qp(labels, clients=10, size_alpha=1e6, label_alpha=1e6):
        # the target is the even mix (20, 20, 20); the nearest table with class sums (300, 200, 100) adds
        # the same to every client: (30, 20, 10)
        counts = np.bincount(labels[part], minlength=3)
        assert np.abs(counts - [30, 20, 10]).max() <= 1


def test_a_small_label_alpha_gives_a_client_few_classes():
    labels = np.repeat(np.arange(10), 100)
    parts = partitioning.dirichlet_qp(labels, clients=10, size_alpha=1e6, label_alpha=1e-3)
    even = partitioning.dirichlet_qp(labels, clients=10, size_alpha=1e6, label_alpha=1e6)
    largest = [np.mean([np.bincount(labels[p]).max() / p.size for p in of]) for of in (parts, even)]
    assert largest[0] > 0.5
    assert largest[1] < 0.2


def test_labels_may_be_words_or_numbers():
    words = np.random.default_rng(0).choice(["a", "b", "c"], 60)
    numbers = np.unique(words, return_inverse=True)[1]
    options = {"clients": 6, "label_alpha": 0.1}
    for of_words, of_numbers in zip(
        partitioning.dirichlet_qp(list(words), **options),
        partitioning.dirichlet_qp(numbers, **options),
        strict=True,
    ):
        assert np.array_equal(of_words, of_numbers)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "iidd"}, "scheme 'iidd' is unknown.*did you mean 'iid'"),
        ({"scheme": "iid", "label_alpha": 1}, "'iid' does not take 'label_alpha': it takes nothing"),
        ({"label_alfa": 1}, "does not take 'label_alfa'.*did you mean 'label_alpha'"),
        ({"label_alpha": 0}, "label_alpha is 0: give a finite number above 0"),
        ({"size_alpha": float("nan")}, "size_alpha is nan"),
        ({"size_alpha": float("inf")}, "size_alpha is inf"),
        ({"size_alpha": "1"}, "size_alpha is '1'"),
        ({"clients": 0}, "clients is 0: give a whole number, 1 or more"),
        ({"clients": 2.5}, "clients is 2.5"),
        ({"clients": True}, "clients is True"),
        ({"clients": 21}, "21 clients of at least 1 need 21 samples and there are 20"),
        ({"clients": 7, "min_size": 3}, "7 clients of at least 3 need 21 samples and there are 20"),
        ({"min_size": -1}, "min_size is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"labels": []}, "labels have the shape"),
        ({"labels": [[1, 2]]}, "labels have the shape"),
        ({"labels": [0.5, 1.0]}, "labels are of type float64"),
        ({"labels": ["a", None]}, "labels are of type object"),
    ],
)
def test_wrong_input_is_named_in_one_line(options, message):
    call = {"labels": np.repeat([0, 1], 10), "scheme": "dirichlet-qp", "clients": 4} | options
    with pytest.raises(InputError, match=message) as caught:
        partitioning.partition(call.pop("labels"), call.pop("scheme"), **call)
    assert "\n" not in str(caught.value)
