"""Areas under ROC curves from ranks: exact integers until the last division, so no order of samples matters.

    A_c = (number of pairs with s_i > s_j + 1/2 number of pairs with s_i = s_j) / (P N)

over the pairs of a sample i of class c and a sample j of another class, s being the log-odds of c. It is the
trapezoidal area, ties included.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from raysim.measures.metrics import Values

AT_ONCE = 2**18
"""Keys that are ranked together, unless a single class has more."""

UNDEFINED = 0xFFFFFFFE
"""Key of NaN, the largest one."""


def log_odds(outputs: torch.Tensor) -> torch.Tensor:
    """Return the log-odds of each class against the rest, float32 [n, classes].

        log(p_c / (1 - p_c)) = z_c - log sum_(j != c) exp z_j;   of two classes it is the difference of the logits

    They are ordered like the probabilities, but do not saturate: in float32 p is 1 from a difference of 17 on. They are
    computed in float64. NaN stands for a probability that is NaN.

    Args:
        outputs: logits z, [n, classes].
    """
    z = outputs.double()
    largest, place = z.max(1, keepdim=True)
    if z.shape[1] == 2:
        rest = z.flip(1)
    else:
        shares = (z - largest).exp()
        rest = largest + (shares.sum(1, keepdim=True) - shares).log()
        # The others' share is too small beside that of the largest logit to be found by subtraction.
        rest.scatter_(1, place, z.scatter(1, place, -torch.inf).logsumexp(1, keepdim=True))
    return torch.where(largest.isfinite(), z - rest, torch.nan).float()


def rank_keys(scores: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return one key for each class and sample; keys are ordered like scores, and hold the truth in bit 0.

    The truth takes the place of a score's last bit, so scores tie that differ by less than 2.4e-7 of their size.

    Args:
        scores: scores of the classes, such as `log_odds`, [n, classes].
        labels: true classes, [n].

    Returns:
        Keys [classes, n], or [1, n] of the second of two classes.
    """
    classes = scores.shape[1]
    first = 1 if classes == 2 else 0
    given = scores.T[first:] + np.float32(0)  # makes -0 a 0
    # Bits of positive floats are ordered like the floats, and those of negative ones the other way round.
    bits = given.view(np.uint32)
    ordered = np.where(np.signbit(given), ~bits, bits | np.uint32(1 << 31)) & np.uint32(UNDEFINED)
    ordered[np.isnan(given)] = UNDEFINED
    keys: NDArray[np.uint32] = ordered | (labels == np.arange(first, classes)[:, None])
    return keys


def areas(keys: NDArray[np.uint32], counts: NDArray[np.int64]) -> Values:
    """Return the area of each owner and class, [owners, classes].

    An area is undefined without samples on both sides, and NaN if a score is NaN.

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

    # Samples of one owner with one score are a tie; each class begins one.
    scores, begins = ordered >> ordered.dtype.type(1), np.ones(ordered.size, np.bool_)
    np.not_equal(scores[1:], scores[:-1], out=begins[1:])
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
    # The largest key of an owner shows whether any of its scores is NaN.
    largest = ordered[np.maximum(last, 1) - 1].T.astype(np.uint32) if ordered.size else np.zeros(found.defined.shape)
    diverged = (largest >= UNDEFINED) & (counts > 0)[:, None]
    return Values(np.where(diverged, np.nan, found.numbers), found.defined | diverged)


def _cumulated(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of the values before each one, and of all."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
