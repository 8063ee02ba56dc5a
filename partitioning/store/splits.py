"""Splits by client: training, validation and test clients, and folds for cross-validation."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Integers, share_or_count, whole
from partitioning.common.errors import InputError
from partitioning.common.streams import Purpose, generator

TRAIN, VALIDATION, TEST = "train", "validation", "test"
SPLITS = (TRAIN, VALIDATION, TEST)
"""Names of the splits; arrays hold their indices."""

LEAST_FOLDS = 3
"""One fold tests, one validates, and at least one trains."""

Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Splits:
    """Split of a population's clients: either two held-out groups or folds.

    Args:
        test_clients: number of clients held out for test.
        validation_clients: number of clients held out for validation.
        folds: number of folds; 0 for none.
        stratified: whether groups or folds have similar client sizes.
    """

    test_clients: int
    validation_clients: int
    folds: int
    stratified: bool

    @classmethod
    def of(
        cls,
        clients: int,
        *,
        test_clients: float = 0,
        validation_clients: float = 0,
        folds: int = 0,
        stratify: bool = False,
    ) -> "Splits":
        """Check the options of a split and resolve shares to numbers.

        Args:
            clients: number of clients K.
            test_clients: clients held out for test: a number, or a share that holds out max(1, floor(share K)).
            validation_clients: clients held out for validation, a number or a share.
            folds: number of folds; 0 for none.
            stratify: whether groups or folds get clients of similar sizes.

        Raises:
            InputError: a value is out of range, no training client is left, or held-out groups and folds are combined.
        """
        test = share_or_count("test_clients", test_clients, total=clients)
        validation = share_or_count("validation_clients", validation_clients, total=clients)
        folds = whole("folds", folds, least=0)
        if folds:
            _check_folds(folds, clients, test + validation)
        elif test + validation >= clients:
            raise InputError(
                f"test_clients is {test_clients!r} and validation_clients is {validation_clients!r}, which hold out "
                f"{test + validation} of {clients} clients: leave at least one client for training"
            )
        if stratify and not (folds or test or validation):
            raise InputError("stratify is True and no client is held out: give folds, test_clients, or leave it out")
        return cls(test, validation, folds, bool(stratify))

    def draw(self, sizes: Integers, *, seed: int) -> tuple[Codes, Integers]:
        """Draw the split and the fold of each client (RADFed, section IV-C).

        Args:
            sizes: samples per client [K].
            seed: key of the draw.

        Returns:
            Indices in `SPLITS` [K], and folds [K]. With folds, the split is that of fold 0; without, folds are -1.
        """
        if self.folds:
            fold = self._draw_folds(sizes, generator(seed, Purpose.FOLDS))
            return split_of_fold(fold, 0, 1), fold
        random = generator(seed, Purpose.TEST_CLIENTS)
        order = self._stratify_groups(sizes, random) if self.stratified else random.permutation(sizes.size)
        split = np.full(sizes.size, SPLITS.index(TRAIN), np.int8)
        split[order[: self.test_clients]] = SPLITS.index(TEST)
        split[order[self.test_clients :][: self.validation_clients]] = SPLITS.index(VALIDATION)
        return split, np.full(sizes.size, -1)

    def _draw_folds(self, sizes: Integers, random: np.random.Generator) -> Integers:
        # Deal clients to folds in turn, in random order. Each stratum has one client per fold.
        order = _shuffle_strata(sizes, self.folds, random) if self.stratified else random.permutation(sizes.size)
        fold = np.empty(sizes.size, np.int64)
        fold[order] = np.arange(sizes.size) % self.folds
        return fold

    def _stratify_groups(self, sizes: Integers, random: np.random.Generator) -> Integers:
        # Draw one test client from each stratum, then the validation clients from the rest in the same way.
        order = _ascending(sizes, random)
        test = _one_of_each(order.size, self.test_clients, random)
        left = np.delete(order, test)
        return np.concatenate([order[test], left[_one_of_each(left.size, self.validation_clients, random)]])


def split_of_fold(fold: Integers, number: int, validation: int) -> Codes:
    """Return each client's split [K]: one fold tests, another validates, the others train."""
    split = np.full(fold.size, SPLITS.index(TRAIN), np.int8)
    split[fold == number] = SPLITS.index(TEST)
    split[fold == validation] = SPLITS.index(VALIDATION)
    return split


def _check_folds(folds: int, clients: int, held_out: int) -> None:
    if folds < LEAST_FOLDS:
        raise InputError(
            f"folds is {folds}: give {LEAST_FOLDS} or more (one tests, one validates, the rest train), or 0 for none"
        )
    if clients < folds:
        raise InputError(f"folds is {folds} and there are {clients} clients: give at most as many folds as clients")
    if held_out:
        raise InputError(
            f"folds is {folds} beside held-out clients: every client is in a fold; "
            "leave out test_clients and validation_clients"
        )


def _ascending(sizes: Integers, random: np.random.Generator) -> Integers:
    # Clients by size; ties in random order.
    shuffled = random.permutation(sizes.size)
    ascending: Integers = shuffled[np.argsort(sizes[shuffled], kind="stable")]
    return ascending


def _shuffle_strata(sizes: Integers, width: int, random: np.random.Generator) -> Integers:
    strata = np.arange(sizes.size) // width
    order: Integers = _ascending(sizes, random)[np.lexsort((random.random(sizes.size), strata))]
    return order


def _one_of_each(places: int, strata: int, random: np.random.Generator) -> Integers:
    # Cut the places into runs of nearly equal length and draw one place from each.
    bounds = np.arange(strata + 1) * places // max(strata, 1)
    return random.integers(bounds[:-1], bounds[1:])
