"""Schemes that sort the samples by label and deal runs of them."""

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Integers, encode, read_seed, whole
from partitioning.common.errors import InputError
from partitioning.common.streams import Purpose, generator
from partitioning.schemes.parts import Parts, even, group


def shards(labels: npt.ArrayLike, *, clients: int, shards_per_client: int = 2, seed: int = 0) -> Parts:
    """Sort by label, cut into equal shards, and deal each client the same number of them.

        K s shards of N / (K s) samples, s per client

    Most clients have at most s labels. McMahan et al. 2017, section 3 (200 shards of 300, two per client); FedBS,
    section V ("balanced"). Deviation: shards differ by 1 if K s does not divide N.

    Args:
        labels: one label per sample [N].
        clients: number of clients K.
        shards_per_client: shards per client, s; K s must not exceed N.
        seed: key of the order of each label's samples, and of the deal.

    Returns:
        K ascending int64 arrays of indices into `labels`.

    Raises:
        InputError: a value is out of range.
    """
    codes, _ = encode(labels)
    clients, each = whole("clients", clients, least=1), whole("shards_per_client", shards_per_client, least=1)
    _check_number(clients * each, codes.size)  # before memory is taken for the clients
    return _hand_out(codes, np.full(clients, each), read_seed(seed))


def shards_unbalanced(
    labels: npt.ArrayLike,
    *,
    clients: int,
    shards: int = 1200,
    least_shards: int = 1,
    most_shards: int = 30,
    seed: int = 0,
) -> Parts:
    """Sort by label, cut into equal shards, and deal each client a random number of them.

        s_t ~ U{least, ..., most}, then all s_t move by the same number within [least, most], at last random ones
        by 1, until sum s_t = shards

    FedBS, section V ("unbalanced": 1,200 shards of 50, 1 to 30 per client). Deviation: the paper does not say how the
    numbers are drawn.

    Args:
        labels: one label per sample [N].
        clients: number of clients K.
        shards: number of shards, at most N.
        least_shards: smallest number of shards per client.
        most_shards: largest number of shards per client.
        seed: key of every draw.

    Returns:
        K ascending int64 arrays of indices into `labels`.

    Raises:
        InputError: a value is out of range.
    """
    codes, _ = encode(labels)
    clients, seed = whole("clients", clients, least=1), read_seed(seed)
    shards, least = whole("shards", shards, least=1), whole("least_shards", least_shards, least=0)
    most = whole("most_shards", most_shards, least=least)
    _check_number(shards, codes.size)
    if not clients * least <= shards <= clients * most:
        raise InputError(
            f"shards is {shards}, and {clients} clients with {least} to {most} shards each hold {clients * least} to "
            f"{clients * most}: change one of the four"
        )
    return _hand_out(codes, _draw_numbers(clients, shards, least, most, generator(seed, Purpose.SIZES)), seed)


def _check_number(shards: int, samples: int) -> None:
    if shards > samples:
        raise InputError(
            f"{shards} shards of at least 1 sample need {shards} samples and there are {samples}: ask for fewer"
        )


def _draw_numbers(clients: int, total: int, least: int, most: int, random: np.random.Generator) -> Integers:
    numbers = random.integers(least, most, size=clients, endpoint=True)
    while missing := total - int(numbers.sum()):
        # Add an equal number to all clients with room, or one to some of them.
        free = np.flatnonzero((numbers < most) if missing > 0 else (numbers > least))
        chosen = random.permutation(free)[: abs(missing)]
        step = max(abs(missing) // free.size, 1) * (1 if missing > 0 else -1)
        numbers[chosen] = np.clip(numbers[chosen] + step, least, most)
    return numbers


def _hand_out(codes: Integers, numbers: Integers, seed: int) -> Parts:
    # numbers: shards of each client [K].
    random = generator(seed, Purpose.SHARDS)
    shuffled = random.permutation(codes.size)
    by_label = shuffled[np.argsort(codes[shuffled], kind="stable")]
    sizes = even(codes.size, int(numbers.sum()))
    owners = np.empty(codes.size, np.int64)
    owners[by_label] = np.repeat(random.permutation(np.repeat(np.arange(numbers.size), numbers)), sizes)
    return Parts(group(owners, numbers.size))
