import numpy as np
import pytest

from partitioning import InputError
from partitioning.schemes.priors import draw_shares


@pytest.mark.parametrize("alpha", [1e-300, 1e-6, 1e-3, 0.5, 1e6, 1e12])
@pytest.mark.parametrize("form", ["number", "vector", "matrix"])
def test_shares_sum_to_one_for_any_alpha(alpha, form):
    prior = {"number": alpha, "vector": [alpha] * 5, "matrix": np.full((5, 1000), alpha)}[form]
    shares = draw_shares(np.random.default_rng(0), prior, clients=5, parts=1000)
    assert shares.shape == (5, 1000)
    assert np.allclose(shares.sum(axis=1), 1)
    assert shares.min() >= 0
    if alpha > 1e5:
        assert np.allclose(shares, 1e-3, rtol=0.01)
    if alpha < 1e-5:
        assert np.allclose(shares.max(axis=1), 1)


def test_each_client_has_its_own_prior():
    shares = draw_shares(np.random.default_rng(0), [1e-6, 1e6], clients=2, parts=4)
    assert shares[0].max() > 0.999
    assert np.allclose(shares[1], 0.25, atol=0.01)
    towards = draw_shares(np.random.default_rng(0), [[1e6, 1e6, 2e6], [2e6, 1e6, 1e6]], clients=2, parts=3)
    assert np.allclose(towards, [[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]], atol=0.01)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (0.0, "label_alpha is 0.0: give a finite number above 0"),
        ("0.1,1", r"label_alpha is '0.1,1': give a number above 0, or numbers in brackets"),
        ([1.0, 1.0], r"label_alpha has the shape \[2\]: give one number, 3 numbers .* or 3 lists of 2 numbers"),
        ([[1.0, 2.0], [1.0]], "label_alpha has the shape of no table"),
        ([1.0, -1.0, 1.0], "label_alpha holds -1.0: give numbers above 0"),
        ([1.0, float("nan"), 1.0], "label_alpha holds nan"),
    ],
)
def test_priors_of_another_form_are_refused(prior, message):
    with pytest.raises(InputError, match=message):
        draw_shares(np.random.default_rng(0), prior, clients=3, parts=2)
