"""Dirichlet priors: one for all clients, one per client, or one per client and category."""

from collections.abc import Sequence

import numpy as np

from partitioning.common.checks import Floats, positive
from partitioning.common.errors import InputError

Prior = float | Sequence[float] | Sequence[Sequence[float]]
"""One number for all clients, K numbers (one per client), or K lists (one number per category)."""

# Beyond these bounds a draw equals its limit in floating point: one share of 1, or equal shares. The gamma variates
# that numpy divides would under- or overflow.
_BOUNDS = (1e-12, 1e18)


def draw_shares(
    random: np.random.Generator, prior: Prior, *, clients: int, parts: int, name: str = "label_alpha"
) -> Floats:
    """Draw a distribution over `parts` categories for each client, c_t ~ Dir(prior_t): [K, parts], rows sum to 1.

    Args:
        random: generator of the draws.
        prior: finite numbers above 0, see `Prior`; small for one category per client, large for equal shares.
        clients: number of clients K.
        parts: number of categories.
        name: name of the parameter, for the message.

    Raises:
        InputError: the prior has another shape or a number that is not above 0.
    """
    if isinstance(prior, str):
        raise InputError(f"{name} is {prior!r}: give a number above 0, or numbers in brackets, [0.1, 1.0, ...]")
    if not isinstance(prior, Sequence | np.ndarray):
        return random.dirichlet(np.full(parts, np.clip(positive(name, prior), *_BOUNDS)), size=clients)
    numbers = _numbers(prior, clients, parts, name)
    rows = np.broadcast_to(numbers if numbers.ndim == 2 else numbers[:, None], (clients, parts))
    return np.stack([random.dirichlet(row) for row in np.clip(rows, *_BOUNDS)])


def _numbers(prior: Prior, clients: int, parts: int, name: str) -> Floats:
    try:
        numbers = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.shape not in ((clients,), (clients, parts)):
        raise InputError(
            f"{name} has the shape {list(np.shape(numbers)) if numbers.size else 'of no table'}: give one number, "
            f"{clients} numbers [0.1, ...] (one per client), or {clients} lists of {parts} numbers (one per client and "
            "category)"
        )
    if not (np.isfinite(numbers).all() and (numbers > 0).all()):
        raise InputError(f"{name} holds {numbers[~(np.isfinite(numbers) & (numbers > 0))][0]}: give numbers above 0")
    return numbers
