"""What each of the other schemes promises, in small exact numbers."""

from pathlib import Path

import numpy as np
import pytest

import partitioning
from partitioning import InputError

MNIST_LIKE = np.repeat(np.arange(10), 6000)


def table(labels, parts):
    codes = np.unique(labels, return_inverse=True)[1]
    return np.array([np.bincount(codes[part], minlength=codes.max() + 1) for part in parts])


def test_iid_sizes_differ_by_at_most_one():
    sizes = [part.size for part in partitioning.iid(np.zeros(17, int), clients=5)]
    assert sorted(sizes) == [3, 3, 3, 4, 4]


def test_quantity_skews_sizes_and_leaves_the_mixes():
    counts = table(MNIST_LIKE, partitioning.quantity(MNIST_LIKE, clients=20, size_alpha=0.5))
    sizes = counts.sum(axis=1)
    assert sizes.max() > 5 * np.median(sizes)
    large = counts[sizes > 1000]
    assert np.abs(large / large.sum(axis=1, keepdims=True) - 0.1).max() < 0.04


def test_the_two_dirichlets_are_not_the_same():
    per_client = table(MNIST_LIKE, partitioning.dirichlet(MNIST_LIKE, clients=100, label_alpha=0.5))
    per_class = table(MNIST_LIKE, partitioning.dirichlet_per_class(MNIST_LIKE, clients=100, label_alpha=0.5))
    assert set(per_client.sum(axis=1)) == {600}
    assert per_class.sum(axis=1).std() > 100
    for counts in (per_client, per_class):
        assert counts.sum(axis=0).tolist() == [6000] * 10


def test_a_large_alpha_of_either_dirichlet_is_even():
    exact = table(MNIST_LIKE, partitioning.dirichlet_per_class(MNIST_LIKE, clients=10, label_alpha=1e9))
    assert np.abs(exact - 600).max() < 2
    # `dirichlet` draws samples one by one, so a count deviates by sqrt(6000 x 0.1 x 0.9) = 23, and that of the last
    # client, which takes what nine have left, by three times as much: three such deviations
    drawn = table(MNIST_LIKE, partitioning.dirichlet(MNIST_LIKE, clients=10, label_alpha=1e9))
    assert np.abs(drawn[:-1] - 600).max() < 4 * 23
    assert np.abs(drawn[-1] - 600).max() < 3 * 3 * 23


def test_dirichlet_per_class_raises_small_clients_and_keeps_the_rest():
    labels = np.repeat(np.arange(3), 50)
    free = table(labels, partitioning.dirichlet_per_class(labels, clients=20, label_alpha=0.1, min_size=0, seed=2))
    raised = table(labels, partitioning.dirichlet_per_class(labels, clients=20, label_alpha=0.1, min_size=4, seed=2))
    assert free.sum(axis=1).min() == 0
    assert raised.sum(axis=1).min() == 4
    assert raised.sum(axis=0).tolist() == [50, 50, 50]
    assert np.corrcoef(free.ravel(), raised.ravel())[0, 1] > 0.9


def test_200_shards_of_300_leave_a_client_two_labels():
    parts = partitioning.shards(MNIST_LIKE, clients=100)
    counts = table(MNIST_LIKE, parts)
    assert set(counts.sum(axis=1)) == {600}
    assert set(counts.ravel()) == {0, 300, 600}  # a shard has one label, 6000 being 20 x 300


def test_1200_shards_of_50_are_dealt_1_to_30():
    sizes = np.array([part.size for part in partitioning.shards_unbalanced(MNIST_LIKE, clients=100)])
    assert sizes.sum() == 60000
    assert set(sizes % 50) == {0}
    assert sizes.min() >= 50
    assert sizes.max() <= 1500
    assert np.unique(sizes).size > 15


@pytest.mark.parametrize(("shards", "most"), [(100, 30), (3000, 30), (700, 7)])
def test_shard_numbers_reach_both_bounds(shards, most):
    labels = np.arange(6000) % 10
    parts = partitioning.shards_unbalanced(labels, clients=100, shards=shards, most_shards=most)
    assert sum(part.size for part in parts) == 6000


@pytest.mark.parametrize(("clients", "each"), [(10, 1), (10, 2), (100, 1), (100, 4), (5, 0.2)])
def test_labels_per_client_gives_each_exactly_l_in_equal_parts(clients, each):
    counts = table(MNIST_LIKE, partitioning.labels_per_client(MNIST_LIKE, clients=clients, classes_per_client=each))
    number = each if each >= 1 else 2
    assert set((counts > 0).sum(axis=1)) == {number}
    assert set(counts[counts > 0]) == {6000 * 10 // (clients * number)}
    assert counts.sum(axis=0).tolist() == [6000] * 10


def test_labels_per_client_of_numbers_that_do_not_divide():
    labels = np.repeat(np.arange(4), [50, 40, 31, 7])
    counts = table(labels, partitioning.labels_per_client(labels, clients=5, classes_per_client=2))
    assert set((counts > 0).sum(axis=1)) == {2}
    assert (counts > 0).sum(axis=0).tolist() == [3, 3, 2, 2]
    assert counts.sum() == 128


def test_counts_gives_what_the_table_says_and_leaves_the_rest():
    labels = np.array(["b", "a", "b", "a", "a", "c"])
    parts = partitioning.counts(labels, table=[[1, 2, 0], [1, 0, 0]])
    assert table(labels, parts).tolist() == [[1, 2, 0], [1, 0, 0]]
    assert sum(part.size for part in parts) == 4


def test_natural_clients_are_the_column_s_values_in_order():
    roles = np.array(["mercutio", "iago", "mercutio", "puck", "iago", "mercutio"])
    parts = partitioning.natural(np.zeros(6, int), column=roles, min_size=2)
    assert parts.names == ["iago", "mercutio"]
    assert [part.tolist() for part in parts] == [[1, 4], [0, 2, 5]]
    assert parts.report == {"clients_left_out": 1}


def test_domains_are_cut_into_parcels_of_one_mix():
    labels = np.concatenate([np.repeat([0, 1], [60, 40]), np.repeat([0, 1], [10, 190])])
    domain = np.repeat(["paper", "glass"], [100, 200])
    parts = partitioning.domains(labels, domain=domain, clients_per_domain=5)
    assert parts.domains == ["glass"] * 5 + ["paper"] * 5
    assert table(labels, parts).tolist() == [[2, 38]] * 5 + [[12, 8]] * 5
    tenth = partitioning.domains(labels, domain=domain, clients_per_domain=2, fraction=0.1, equal_sizes=True)
    assert np.abs(table(labels, tenth) - [[0.5, 9.5], [0.5, 9.5], [6, 4], [6, 4]]).max() <= 0.5


def test_fedbn_s_sizes():
    # 10 % of 7438 a client, 1 to 10 clients a domain
    domain = np.repeat(np.arange(5), [7438, 8000, 9000, 7438, 60000])
    labels = np.arange(domain.size) % 10
    for clients in (1, 10):
        parts = partitioning.domains(labels, domain=domain, clients_per_domain=clients, fraction=0.1, equal_sizes=True)
        assert {part.size for part in parts} == {743}
        assert len(parts) == 5 * clients
    assert partitioning.domains(labels, domain=domain, fraction=0.01, equal_sizes=True)[0].size == 74


def test_feature_noise_grows_from_client_to_client():
    parts = partitioning.feature_noise(np.zeros(30, int), clients=3, strength=0.5)
    assert parts.shift.levels.tolist() == [0.0, 0.25, 0.5]


def test_concept_renames_a_share_of_the_classes_in_a_cycle():
    parts = partitioning.concept(np.arange(100) % 10, clients=20, strength=0.3)
    names = parts.shift.names
    assert [sorted(row) for row in names.tolist()] == [list(range(10))] * 20
    assert set((names != np.arange(10)).sum(axis=1)) == {3}
    assert len({tuple(row) for row in names.tolist()}) > 10


def test_the_table_of_ham_non_iid_meets_the_text():
    # FedMMB, section 4.3: 2367 samples of two classes, 3376 of five, 2269 of two, nevi the majority in each
    path = Path(partitioning.__file__).parent / "examples" / "ham-non-iid.csv"
    names, *rows = (line.split(",") for line in path.read_text(encoding="utf-8").split())
    counts = np.array(rows, dtype=int)
    assert counts.sum(axis=1).tolist() == [2367, 3376, 2269]
    assert (counts > 0).sum(axis=1).tolist() == [2, 5, 2]
    assert {names[column] for column in counts.argmax(axis=1)} == {"nv"}
    assert (counts[:, names.index("nv")] > counts.sum(axis=1) / 2).all()
    # a random 8,012 of the 10,015 images have each class in proportion
    whole = {"nv": 6705, "mel": 1113, "bkl": 1099, "bcc": 514, "akiec": 327, "vasc": 142, "df": 115}
    assert np.abs(counts.sum(axis=0) - [whole[name] * 8012 / 10015 for name in names]).max() < 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda y: partitioning.shards(y, clients=11),
            "22 shards of at least 1 sample need 22 samples and there are 20",
        ),
        (
            lambda y: partitioning.shards_unbalanced(y, clients=4, shards=3),
            "shards is 3, and 4 clients with 1 to 30 shards each hold 4 to 120",
        ),
        (
            lambda y: partitioning.labels_per_client(y, clients=4, classes_per_client=3),
            "classes_per_client is 3, which makes 3 of 2 classes on each of 4 clients: give a number from 1",
        ),
        (
            lambda y: partitioning.labels_per_client(y, clients=30, classes_per_client=1),
            "class number 0, in sorted order from 0, has 10 samples, too few for 15 parts",
        ),
        (lambda y: partitioning.counts(y, table=[[11, 0]]), "table asks for 11 samples of class number 0"),
        (lambda y: partitioning.counts(y, table=[[1, 2, 3]]), r"table is of shape \[1, 3\].*give 2 whole numbers"),
        (lambda y: partitioning.counts(y, table=[[1, -2]]), "table is of shape"),
        (lambda y: partitioning.counts(y, table=[[1], [1, 2]]), "table is of shape"),
        (
            lambda y: partitioning.counts(y, table=np.array([[2**63, 0]], np.uint64)),
            "table is of .*and below 2.63, for",
        ),
        (lambda y: partitioning.natural(5, column=y), "labels: the shape is"),
        (lambda y: partitioning.natural(y, column=y, min_size=11), "min_size is 11 and the largest client has 10"),
        (lambda y: partitioning.natural(y, column=[1, 2]), "column has 2 values for 20 samples"),
        (lambda y: partitioning.natural(y, column=np.ones(20)), "column: the type is float64"),
        (
            lambda y: partitioning.domains(y, domain=y, clients_per_domain=3, fraction=0.5),
            "fraction is 0.5 for each of 3 clients of a domain: give 0.333333 or less",
        ),
        (lambda y: partitioning.domains(y, domain=y, clients_per_domain=11), "domain '0' has 10 samples to deal"),
        (lambda y: partitioning.domains(y, domain=y, equal_sizes="no"), "equal_sizes is 'no': give True or False"),
        (lambda y: partitioning.iid([[1], [1, 2]], clients=2), "labels: the values are lists of different lengths"),
        (lambda y: partitioning.dirichlet_qp(y, clients=2, solver=3), "solver is '3': give 'auto', 'structured' or"),
        (lambda y: partitioning.concept(np.zeros(9, int), clients=2), "there is one class, which cannot be renamed"),
        (lambda y: partitioning.concept(y, clients=2, strength=1.5), "strength is 1.5"),
        (lambda y: partitioning.feature_noise(y, clients=2, strength=0), "strength is 0: give a finite number above 0"),
    ],
)
def test_what_cannot_be_is_refused_with_its_numbers(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call(np.repeat([0, 1], 10))
    assert "\n" not in str(caught.value)


def test_a_smaller_alpha_is_never_more_even():
    # also where shares are 0 as numbers: the order of their logarithms decides once a class has run out
    labels = np.random.default_rng(0).integers(0, 10, 1797)

    def largest(alpha):
        drawn = [partitioning.dirichlet(labels, clients=20, label_alpha=alpha, seed=seed) for seed in range(5)]
        return np.mean([np.bincount(labels[part]).max() / part.size for parts in drawn for part in parts])

    shares = [largest(alpha) for alpha in (1e6, 1.0, 0.1, 1e-3, 1e-300)]
    assert np.all(np.diff(shares) > -0.01)
    assert shares[-1] > 0.9


def test_shard_numbers_that_are_far_from_the_draw_are_reached_at_once():
    parts = partitioning.shards_unbalanced(
        np.arange(200_000) % 10, clients=2, shards=200_000, least_shards=0, most_shards=200_000
    )
    assert sum(part.size for part in parts) == 200_000
    with pytest.raises(InputError, match="1000000000 shards of at least 1 sample need"):
        partitioning.shards_unbalanced(np.arange(100) % 10, clients=1, shards=10**9, most_shards=10**9)
