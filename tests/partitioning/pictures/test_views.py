import numpy as np
import pytest

from partitioning import make
from partitioning.pictures.views import View, column_edges, group_clients, mean_counts, mean_shares, share_classes

pytestmark = pytest.mark.usefixtures("drawn")


def test_a_few_clients_keep_the_order_of_their_ids():
    columns = group_clients(np.array([[0, 1], [5, 0], [2, 2]]))
    assert [group.tolist() for group in columns] == [[0], [1], [2]]
    assert column_edges(columns).tolist() == [0, 1, 2, 3]


def test_more_clients_are_ordered_by_their_largest_class_and_its_share():
    kinds = np.array([[0, 0, 0], [1, 3, 0], [0, 4, 0], [9, 1, 0], [0, 0, 2], [4, 0, 0]])
    columns = group_clients(np.repeat(kinds, 6, axis=0))
    kind_of_client = np.concatenate(columns) // 6
    assert kind_of_client[::6].tolist() == [5, 3, 2, 1, 4, 0]  # the empty ones last


@pytest.mark.parametrize("clients", [26, 250, 251, 7777])
def test_every_client_is_in_one_column_and_columns_are_nearly_equal(clients):
    counts = np.random.default_rng(0).integers(0, 4, (clients, 3))
    columns = group_clients(counts)
    widths = [len(group) for group in columns]
    assert sorted(np.concatenate(columns)) == list(range(clients))
    assert len(widths) == min(clients, 250)
    assert max(widths) - min(widths) <= 1
    assert column_edges(columns)[-1] == clients
    assert mean_counts(columns, counts).T @ widths == pytest.approx(counts.sum(axis=0))


def test_a_column_has_the_mean_shares_of_its_clients_whatever_their_sizes():
    counts = np.array([[100, 0], [0, 1], [0, 0]])
    columns = group_clients(counts)
    assert mean_shares(columns, counts).tolist() == [[1, 0], [0, 1], [0, 0]]
    together = [np.array([0, 1, 2])]
    assert mean_shares(together, counts).tolist() == [[0.5, 0.5]]
    assert mean_counts(together, counts).tolist() == [[100 / 3, 1 / 3]]


def test_clients_of_one_class_are_not_blurred_when_a_column_stands_for_many():
    counts = np.eye(10, dtype=int)[np.random.default_rng(0).integers(0, 10, 20_000)]
    pure = (mean_shares(group_clients(counts), counts).max(axis=1) == 1).mean()
    assert pure > 0.95  # in the order of their ids, none would be


def test_views_get_the_classes_of_all():
    first, second = share_classes(
        [View("a", np.array([[1, 2]]), ["bee", "cat"]), View("b", np.array([[3, 4]]), ["cat", "ant"])]
    )
    assert first.classes == second.classes == ["ant", "bee", "cat"]
    assert first.class_counts.tolist() == [[0, 1, 2]]
    assert second.class_counts.tolist() == [[4, 0, 3]]


def test_equal_classes_keep_their_order_and_unlike_types_stay_apart():
    same = [View("a", np.array([[1, 2]]), ["name 2", "name 10"])] * 2
    assert share_classes(same) == same
    mixed = share_classes([View("a", np.array([[1, 2]]), [0, 1]), View("b", np.array([[3, 4]]), [False, True])])
    assert [view.class_counts.tolist() for view in mixed] == [[[0, 0, 1, 2]], [[3, 4, 0, 0]]]


def test_a_population_on_disk_is_viewed(table, tmp_path):
    population = make(table, tmp_path / "p", scheme="iid", clients=3)
    view = View.of(population, "mine")
    assert (view.name, list(view.classes), dict(view.features)) == ("mine", ["ant", "bee", "cat"], {})
    assert view.sizes.tolist() == population.sizes.tolist()
