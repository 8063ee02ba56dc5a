import numpy as np
import pytest

from partitioning.schemes.sizes import apportion, draw_sizes, raise_to


def test_apportion_gives_the_rest_to_the_largest_remainders():
    assert apportion(np.array([0.26, 0.34, 0.40]), 10).tolist() == [3, 3, 4]
    assert apportion(np.array([1.0, 1.0, 1.0]), 4).tolist() == [2, 1, 1]  # a tie goes to the first


def test_raise_to_follows_its_formula():
    # m = 2, N - K m = 12 - 6 = 6, surplus (0, 1, 7): 2 + 6 * (0, 1/8, 7/8) = (2, 2.75, 7.25)
    assert raise_to(np.array([0, 3, 9]), 2).tolist() == [2, 3, 7]
    unchanged = np.array([2, 3, 7])
    assert raise_to(unchanged, 2) is unchanged
    assert raise_to(np.array([0, 0, 6]), 2).tolist() == [2, 2, 2]


@pytest.mark.parametrize("alpha", [1e-300, 1e-3, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("clients", [1, 2, 40])
def test_sizes_are_whole_exact_and_large_enough(alpha, clients):
    random = np.random.default_rng(0)
    sizes, _ = draw_sizes(random, samples=40, clients=clients, alpha=alpha, least=1)
    assert sizes.dtype == np.int64
    assert sizes.sum() == 40
    assert sizes.min() >= 1
