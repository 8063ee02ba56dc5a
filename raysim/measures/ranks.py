"""Areas under ROC curves from ranks: exact integers until the last division, so no order of samples matters.

    A_c = (number of pairs with p_i > p_j + 1/2 number of pairs with p_i = p_j) / (P N)

over the pairs of a sample i of class c and a sample j of another class. It is the trapezoidal area, ties included.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from raysim.measures.metrics import Values

AT_ONCE = 2**18
"""Keys that are ranked together, unless a single class has more."""

NOT_FINITE = 0xFF000000
"""Least key of an infinite probability or of NaN."""


def rank_keys(probabilities: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return one key for each class and sample; keys are ordered like probabilities, and hold the truth in bit 0.

    The bits of floats that are not negative are ordered like the floats, and their sign bit is free.

    Args:
        probabilities: predicted probabilities, [n, classes].
        labels: true classes, [n].

    Returns:
        Keys [classes, n], or [1, n] of the second of two classes.
    """
    classes = probabilities.shape[1]
    first = 1 if classes == 2 else 0
    bits = np.ascontiguousarray(probabilities.T[first:]).view(np.uint32) << np.uint32(1)  # drops the sign
    keys: NDArray[np.uint32] = bits | (labels == np.arange(first, classes)[:, None])
    return keys


def areas(keys: NDArray[np.uint32], counts: NDArray[np.int64]) -> Values:
    """Return the area of each owner and class, [owners, classes].

    An area is undefined without samples on both sides, and NaN if a probability is not finite.

    Args:
        keys: keys of all owners' samples, end to end, [classes, n].
        counts: number of each owner's samples, [owners].
    """
    step = max(1, AT_ONCE // max(1, keys.shape[1]))
    return Values.joined([_areas(keys[start : start + step], counts) for start in range(0, len(keys), step)], axis=1)


def _areas(keys: NDArray[np.uint32], counts: NDArray[np.int64]) -> Values:
    """Return the areas of some classes, ranked by one sort for each."""
    classes, samples = keys.shape
    # With the owner in the upper bits, a sorted class keeps each owner's samples together.
    owners = np.repeat(np.arange(len(counts), dtype=np.uint64) << np.uint64(32), counts)
    ordered = np.sort(keys if len(counts) == 1 else keys | owners, axis=1).ravel()
    bounds = samples * np.arange(classes)[:, None] + np.concatenate([[0], np.cumsum(counts)])
    positives = _cumulated((ordered & ordered.dtype.type(1)).astype(np.int64))

    # Samples of one owner with one probability are a tie; each class begins one.
    probabilities, begins = ordered >> ordered.dtype.type(1), np.ones(ordered.size, np.bool_)
    np.not_equal(probabilities[1:], probabilities[:-1], out=begins[1:])
    begins[:: samples or 1] = True
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], ordered.size)
    of_class = positives[ends] - positives[starts]
    below = starts - positives[starts]
    # Of twice the pairs, each sample below counts two, and each in the tie one.
    pairs = _cumulated(of_class * (2 * below + (ends - starts - of_class)))

    tie, first, last = np.searchsorted(starts, bounds), bounds[:, :-1], bounds[:, 1:]
    true = positives[last] - positives[first]
    rest = last - first - true
    won = pairs[tie[:, 1:]] - pairs[tie[:, :-1]] - 2 * (first - positives[first]) * true
    found = Values.ratio(won.T, (2 * true * rest).T)
    # The largest key of an owner shows whether all of its probabilities are finite.
    largest = ordered[np.maximum(last, 1) - 1].T.astype(np.uint32) if ordered.size else np.zeros(found.defined.shape)
    diverged = (largest >= NOT_FINITE) & (counts > 0)[:, None]
    return Values(np.where(diverged, np.nan, found.numbers), found.defined | diverged)


def _cumulated(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of the values before each one, and of all."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
