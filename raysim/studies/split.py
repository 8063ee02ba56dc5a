"""Seeds and folds of a trial."""

from dataclasses import dataclass

Unit = tuple[int, int | None, int | None]
"""Seed, test fold and seed of the partition: the unit of a paired comparison. The fold is None without folds, and the
seed of the partition is None for the file's own."""


@dataclass(frozen=True)
class Split:
    """Seeds and folds of a trial.

    Args:
        seed: seed of the training.
        fold: test fold of the population; None for the held-out clients that the population has.
        validation: validation fold; None likewise.
        partition: seed of the partition; None for the file's own seed.
    """

    seed: int
    fold: int | None = None
    validation: int | None = None
    partition: int | None = None

    @property
    def unit(self) -> Unit:
        return self.seed, self.fold, self.partition
