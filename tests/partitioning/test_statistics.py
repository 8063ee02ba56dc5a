import numpy as np
import pytest

from partitioning.statistics import Statistics, summarise


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
