"""Splits by client: exact numbers, folds that cover everyone once, and like sizes in strata."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning import InputError
from partitioning.common.streams import Purpose, generator
from partitioning.store.splits import SPLITS, Splits, split_of_fold

SIZES = st.lists(st.integers(0, 50), min_size=3, max_size=40).map(np.array)


def count(split):
    return {name: int(np.count_nonzero(split == code)) for code, name in enumerate(SPLITS)}


@pytest.mark.parametrize("stratify", [False, True])
@given(sizes=SIZES, test=st.floats(0.01, 0.5), validation=st.floats(0.01, 0.4), seed=st.integers(0, 99))
def test_held_out_groups_have_their_numbers_and_do_not_overlap(stratify, sizes, test, validation, seed):
    clients = len(sizes)
    asked = Splits.of(clients, test_clients=test, validation_clients=validation, stratify=stratify)
    split, fold = asked.draw(sizes, seed=seed)
    tests, validations = max(1, int(test * clients + 1e-9)), max(1, int(validation * clients + 1e-9))
    assert count(split) == {"train": clients - tests - validations, "validation": validations, "test": tests}
    assert fold.tolist() == [-1] * clients
    again, _ = asked.draw(sizes, seed=seed)
    assert np.array_equal(split, again)


def test_the_test_clients_are_the_same_whatever_else_is_asked():
    sizes = np.arange(20)
    expected = sorted(generator(7, Purpose.TEST_CLIENTS).permutation(20)[:4].tolist())
    for more in ({}, {"validation_clients": 5}):
        split, _ = Splits.of(20, test_clients=4, **more).draw(sizes, seed=7)
        assert np.flatnonzero(split == SPLITS.index("test")).tolist() == expected


@pytest.mark.parametrize("stratify", [False, True])
@given(sizes=SIZES, folds=st.integers(3, 7), seed=st.integers(0, 99))
def test_every_client_is_in_one_fold_of_nearly_equal_numbers(stratify, sizes, folds, seed):
    folds = min(folds, len(sizes))
    split, fold = Splits.of(len(sizes), folds=folds, stratify=stratify).draw(sizes, seed=seed)
    numbers = np.bincount(fold, minlength=folds)
    assert numbers.size == folds and numbers.sum() == len(sizes) and np.ptp(numbers) <= 1
    assert np.array_equal(split, split_of_fold(fold, 0, 1))


@given(sizes=SIZES, folds=st.integers(3, 7), seed=st.integers(0, 99))
def test_each_fold_has_one_client_of_every_stratum(sizes, folds, seed):
    folds = min(folds, len(sizes))
    _, fold = Splits.of(len(sizes), folds=folds, stratify=True).draw(sizes, seed=seed)
    ascending = np.sort(sizes)
    for number in range(folds):
        own = np.sort(sizes[fold == number])
        for place, size in enumerate(own.tolist()):
            stratum = ascending[place * folds : (place + 1) * folds]
            assert stratum[0] <= size <= stratum[-1]


def test_stratified_groups_take_one_client_of_each_run_of_sizes():
    sizes = np.random.default_rng(0).permutation(np.arange(12)) * 10
    draws = [
        Splits.of(12, test_clients=3, validation_clients=3, stratify=True).draw(sizes, seed=s)[0] for s in range(9)
    ]
    for split in draws:
        assert (np.sort(sizes[split == SPLITS.index("test")]) // 40).tolist() == [0, 1, 2]
        assert np.all(np.diff(np.sort(sizes[split == SPLITS.index("validation")])) > 0)
    assert len({tuple(split.tolist()) for split in draws}) > 5


def test_a_folds_view_tests_one_validates_another_and_trains_on_the_rest():
    fold = np.array([0, 1, 2, 3, 1])
    words = [[SPLITS[code] for code in split_of_fold(fold, *pair)] for pair in ((1, 2), (3, 0))]
    assert words == [
        ["train", "test", "validation", "train", "test"],
        ["validation", "train", "train", "test", "train"],
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 2}, "folds is 2: give 3 or more"),
        ({"folds": 9}, "folds is 9 and there are 8 clients"),
        ({"folds": -1}, "folds is -1"),
        ({"folds": 3, "test_clients": 1}, "folds is 3 beside held-out clients"),
        ({"folds": 3, "validation_clients": 0.1}, "folds is 3 beside held-out clients"),
        ({"test_clients": 4, "validation_clients": 0.5}, "hold out 8 of 8 clients: leave at least one"),
        ({"validation_clients": 1.5}, "validation_clients is 1.5"),
        ({"test_clients": -0.1}, "test_clients is -0.1"),
        ({"stratify": True}, "stratify is True and no client is held out"),
    ],
)
def test_wrong_splits_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Splits.of(8, **options)
