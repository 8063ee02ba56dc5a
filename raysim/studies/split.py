"""Seed and folds of a trial."""

from dataclasses import dataclass

Unit = tuple[int, int | None]
"""Seed and test fold: the unit of a paired comparison. The fold is None without folds."""


@dataclass(frozen=True)
class Split:
    """Seed and folds of a trial.

    Args:
        seed: seed of the training.
        fold: test fold of the population; None for the held-out clients that the population has.
        validation: validation fold; None likewise.
    """

    seed: int
    fold: int | None = None
    validation: int | None = None

    @property
    def unit(self) -> Unit:
        return self.seed, self.fold
